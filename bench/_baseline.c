/* The least that a call like the wheel's can cost: the arguments parsed, an int or a bool
   returned, and nothing in between. Written by hand against CPython's own interface, so
   that it does not share what a compiler of Python might add. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static int
parse(PyObject *argument, long long *value)
{
    *value = PyLong_AsLongLong(argument);
    return *value != -1 || !PyErr_Occurred();
}

static PyObject *
two_ints(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    long long deadline, key;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "two_ints() takes 2 arguments");
        return NULL;
    }
    if (!parse(arguments[0], &deadline) || !parse(arguments[1], &key))
        return NULL;
    /* As long as a handle, and another one at each call. */
    return PyLong_FromLongLong((1LL << 32) + key);
}

static PyObject *
one_int(PyObject *Py_UNUSED(module), PyObject *argument)
{
    long long handle;
    if (!parse(argument, &handle))
        return NULL;
    return PyBool_FromLong(handle > 0);
}

static PyObject *
no_ints(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLongLong(1LL << 32);
}

static PyMethodDef methods[] = {
    {"two_ints", (PyCFunction)(void (*)(void))two_ints, METH_FASTCALL,
     PyDoc_STR("Parse two ints and return one as long as a handle.")},
    {"one_int", one_int, METH_O, PyDoc_STR("Parse one int and return a bool.")},
    {"no_ints", no_ints, METH_NOARGS, PyDoc_STR("Return an int as long as a tick.")},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "bench._baseline",
    .m_doc = PyDoc_STR("Calls that do nothing, to measure what a call costs."),
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__baseline(void)
{
    return PyModuleDef_Init(&module);
}
