// The names that CPython gives the types of a C struct's members since 3.12, for older ones too.
#pragma once
#include <Python.h>
#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h>
#define Py_T_BOOL T_BOOL
#define Py_T_OBJECT_EX T_OBJECT_EX
#define _Py_T_OBJECT T_OBJECT
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_READONLY READONLY
#endif
