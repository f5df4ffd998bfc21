/* SPDX-License-Identifier: MIT */
/*
 * barcopy._fast: a copy between a mapping and a buffer or an address, and single words, without
 * ctypes, which takes most of a small copy's time. Optional: mapping.py does by ctypes what this
 * module refuses, and everything where it is not built. Wheels have it, for every Python from 3.8
 * on. Errors are mapping.py's. The Python files next to it are the only callers: the number of
 * arguments, and the type of those that no user gives, are theirs. The argument `life` is the
 * mapping's Life, which the caller's reference keeps during the call, or None: the mapping is
 * closed, which is refused.
 *
 * It uses Python's stable ABI, and Py_buffer, whose layout is the same in 3.8 and became part of
 * that ABI in 3.11. The declarations are here, so that no Python header of any architecture has to
 * be installed. Source: docs.python.org, "C API Stability" and "Buffer Protocol".
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef ptrdiff_t Py_ssize_t;
typedef struct object PyObject;

typedef struct {
	void *buf;
	PyObject *obj;
	Py_ssize_t len, itemsize;
	int readonly, ndim;
	char *format;
	Py_ssize_t *shape, *strides, *suboffsets;
	void *internal;
} Py_buffer;

typedef struct {
	const char *name;
	PyObject *(*function)(PyObject *self, PyObject *const *args, Py_ssize_t count);
	int flags;
	const char *doc;
} PyMethodDef;

typedef struct {
	Py_ssize_t refcount;
	void *type;
	PyObject *(*init)(void);
	Py_ssize_t index;
	PyObject *copy;
	const char *name, *doc;
	Py_ssize_t size;
	PyMethodDef *methods;
	void *slots, *traverse, *clear, *free;
} PyModuleDef;

enum { PyBUF_WRITABLE = 1, PyBUF_FORMAT = 4, PyBUF_C_CONTIGUOUS = 0x38 };
enum { METH_FASTCALL = 0x80 };
enum { PYTHON_ABI_VERSION = 3 };

extern int PyObject_GetBuffer(PyObject *obj, Py_buffer *view, int flags);
extern void PyBuffer_Release(Py_buffer *view);
extern char *PyBytes_AsString(PyObject *obj);
extern Py_ssize_t PyBytes_Size(PyObject *obj);
extern unsigned long long PyLong_AsUnsignedLongLong(PyObject *obj);
extern Py_ssize_t PyLong_AsSsize_t(PyObject *obj);
extern PyObject *PyLong_FromLong(long value);
extern PyObject *PyLong_FromUnsignedLongLong(unsigned long long value);
extern PyObject _Py_NoneStruct;
extern PyObject *PyErr_Occurred(void);
extern void PyErr_Clear(void);
extern void PyErr_Fetch(PyObject **type, PyObject **value, PyObject **traceback);
extern void PyErr_Restore(PyObject *type, PyObject *value, PyObject *traceback);
extern int PyDict_DelItem(PyObject *dictionary, PyObject *key);
extern PyObject *PyLong_FromVoidPtr(void *pointer);
extern void Py_DecRef(PyObject *obj);
extern int Py_IsInitialized(void);
extern int PyGILState_Ensure(void);
extern void PyGILState_Release(int lock);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *state);
extern PyObject *PyModule_Create2(PyModuleDef *def, int version);

/* gdr_copy_to_mapping() and gdr_copy_from_mapping(); the handle is a struct of one such word. */
typedef int copy_function(unsigned long handle, void *to, const void *from, size_t size);

enum { FUNCTION, LIFE, HANDLE, POINTER, SIZE, FORMATS, OBJECT, BYTES, OFFSET, INTO };
enum { REFUSED = -1 };

/* formats: letters of the buffer protocol; an empty string accepts every format. */
static int is_format(const char *format, const char *formats)
{
	format = format ? format : "B";
	return !*formats || (*format && !format[1] && strchr(formats, *format));
}

/* Fills in buf and len of *view. REFUSED: maybe with an exception set. */
static int open_host(PyObject *const *args, int into, Py_buffer *view)
{
	view->len = PyLong_AsSsize_t(args[BYTES]);
	if (view->len >= 0) {
		view->buf = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(args[OBJECT]);
		return 0;
	}
	if (PyObject_GetBuffer(args[OBJECT], view,
			       PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (into ? PyBUF_WRITABLE : 0)))
		return REFUSED;
	if (is_format(view->format, PyBytes_AsString(args[FORMATS])))
		return 0;
	PyBuffer_Release(view);
	return REFUSED;
}

static long copy(PyObject *const *args)
{
	copy_function *function =
		(copy_function *)(uintptr_t)PyLong_AsUnsignedLongLong(args[FUNCTION]);
	unsigned long handle = (unsigned long)PyLong_AsUnsignedLongLong(args[HANDLE]);
	char *mapped = (char *)(uintptr_t)PyLong_AsUnsignedLongLong(args[POINTER]);
	Py_ssize_t size = PyLong_AsSsize_t(args[SIZE]), offset = PyLong_AsSsize_t(args[OFFSET]);
	int into = PyLong_AsSsize_t(args[INTO]) != 0;
	long result = REFUSED;
	Py_buffer view = {};
	void *state;

	/* An offset that is no integer is -1. */
	if (args[LIFE] == &_Py_NoneStruct || offset < 0 || open_host(args, into, &view))
		return REFUSED;
	if (view.len <= size - offset) {
		state = PyEval_SaveThread();
		result = into ? function(handle, view.buf, mapped + offset, (size_t)view.len)
			      : function(handle, mapped + offset, view.buf, (size_t)view.len);
		PyEval_RestoreThread(state);
	}
	PyBuffer_Release(&view); /* does nothing with one that is not filled in */
	return result;
}

static PyObject *copy_method(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	long result = copy(args);

	(void)self;
	(void)count;
	if (result == REFUSED)
		PyErr_Clear(); /* ctypes meets the same error, and mapping.py words it */
	return PyLong_FromLong(result);
}

/* What _Target of mapping.py packs. */
struct target {
	uint64_t handle, pointer, size, writable;
	uint64_t functions[6]; /* 0 where the library lacks it */
};

typedef int put32_function(unsigned long handle, void *to, uint32_t value);
typedef int put64_function(unsigned long handle, void *to, uint64_t value);
typedef int get32_function(unsigned long handle, const void *from, uint32_t *value);
typedef int get64_function(unsigned long handle, const void *from, uint64_t *value);

enum { PUT32, PUT64, POST32, POST64, GET32, GET64 };
enum { TARGET, WORD_LIFE, WORD, WORD_OFFSET, VALUE };

/* *value: of a put, to store; of a get, what was loaded. Nonzero: refused, or an errno. */
static int access_word(const struct target *t, Py_ssize_t word, Py_ssize_t offset, uint64_t *value)
{
	size_t width = word & 1 ? sizeof(uint64_t) : sizeof(uint32_t);
	void *function = (void *)(uintptr_t)t->functions[word];
	char *mapped = (char *)(uintptr_t)t->pointer + offset;
	uint32_t low = (uint32_t)*value;
	int err;

	/* A negative offset is larger than any size, without a sign. */
	if (!function || t->size < width || (uint64_t)offset > t->size - width)
		return REFUSED;
	if (word == GET64)
		return ((get64_function *)function)(t->handle, mapped, value);
	if (word == GET32) {
		err = ((get32_function *)function)(t->handle, mapped, &low);
		*value = low;
		return err;
	}
	if (!t->writable || (width == sizeof(low) && low != *value))
		return REFUSED;
	return width == sizeof(low) ? ((put32_function *)function)(t->handle, mapped, low)
				    : ((put64_function *)function)(t->handle, mapped, *value);
}

static PyObject *word_method(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	uint64_t value = 0;
	Py_ssize_t word, offset;
	struct target t;

	(void)self;
	(void)count;
	if (args[WORD_LIFE] == &_Py_NoneStruct)
		goto refused;
	memcpy(&t, PyBytes_AsString(args[TARGET]), sizeof(t));
	word = PyLong_AsSsize_t(args[WORD]);
	offset = PyLong_AsSsize_t(args[WORD_OFFSET]);
	if (word < GET32)
		value = PyLong_AsUnsignedLongLong(args[VALUE]);
	if (PyErr_Occurred() || access_word(&t, word, offset, &value))
		goto refused;
	return word < GET32 ? PyLong_FromLong(0) : PyLong_FromUnsignedLongLong(value);
refused:
	PyErr_Clear(); /* ctypes meets the same error, and mapping.py words it */
	return PyLong_FromLong(REFUSED);
}

struct driver {
	uint64_t current, capturing, synchronize; /* addresses: cuCtxGetCurrent() and so on */
};

enum { DRIVER, STREAM, PRIMARY };
enum { PER_THREAD = 2 }; /* _stream.py says why it is not asked about a capture */

/* REFUSED: _stream.py waits in another context, or words the error. */
static int wait_here(const struct driver *d, uint64_t stream, uint64_t primary)
{
	uint64_t current;
	int capturing, err;
	void *state;

	if (((int (*)(uint64_t *))(uintptr_t)d->current)(&current) || current != primary)
		return REFUSED;
	if (stream != PER_THREAD &&
	    (((int (*)(uint64_t, int *))(uintptr_t)d->capturing)(stream, &capturing) || capturing))
		return REFUSED;
	state = PyEval_SaveThread();
	err = ((int (*)(uint64_t))(uintptr_t)d->synchronize)(stream);
	PyEval_RestoreThread(state);
	return err ? REFUSED : 0;
}

static PyObject *wait_method(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	struct driver d;

	(void)self;
	(void)count;
	memcpy(&d, PyBytes_AsString(args[DRIVER]), sizeof(d));
	return PyLong_FromLong(wait_here(&d, PyLong_AsUnsignedLongLong(args[STREAM]),
					 PyLong_AsUnsignedLongLong(args[PRIMARY])));
}

/* The deleter of DLPack: see _dlpack.py. _given, a dictionary, is the struct's manager_ctx. */
static void give_back(void *managed, PyObject *given)
{
	PyObject *type, *value, *traceback, *address;
	int lock;

	if (!Py_IsInitialized())
		return; /* a destructor of C++ at exit: the process releases it */
	lock = PyGILState_Ensure();
	PyErr_Fetch(&type, &value, &traceback);
	address = PyLong_FromVoidPtr(managed);
	if (address) {
		PyDict_DelItem(given, address);
		Py_DecRef(address);
	}
	PyErr_Restore(type, value, traceback);
	PyGILState_Release(lock);
}

struct managed_tensor {
	uint64_t tensor[6];
	PyObject *given;
};

struct versioned_tensor {
	uint32_t major, minor;
	PyObject *given;
};

static void delete_managed(void *managed)
{
	give_back(managed, ((struct managed_tensor *)managed)->given);
}

static void delete_versioned(void *managed)
{
	give_back(managed, ((struct versioned_tensor *)managed)->given);
}

static PyObject *deleter_method(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	(void)self;
	(void)count;
	return PyLong_FromVoidPtr(PyLong_AsSsize_t(*args) ? (void *)delete_versioned
							  : (void *)delete_managed);
}

static PyMethodDef methods[] = {
	{ "copy", copy_method, METH_FASTCALL,
	  "copy(function, life, handle, pointer, size, formats, object, bytes, offset, into)\n\n"
	  "Copies between `object`, a buffer if `bytes` is -1, else the address of that many "
	  "bytes, and "
	  "`offset` in the `size` bytes at `pointer`. Returns 0, an errno, or -1: nothing was "
	  "copied." },
	{ "word", word_method, METH_FASTCALL,
	  "word(target, life, word, offset[, value])\n\n"
	  "Stores `value`, or returns the word loaded. -1: nothing was done, or the call failed." },
	{ "wait", wait_method, METH_FASTCALL,
	  "wait(driver, stream, primary)\n\n"
	  "Waits for a stream, if the context `primary` is current and no graph is captured. -1: "
	  "not." },
	{ "deleter", deleter_method, METH_FASTCALL,
	  "deleter(versioned)\n\nThe address of the deleter of DLPack's structs." },
	{},
};

static PyModuleDef module = { .name = "barcopy._fast", .methods = methods };

__attribute__((visibility("default"))) PyObject *PyInit__fast(void);
PyObject *PyInit__fast(void)
{
	return PyModule_Create2(&module, PYTHON_ABI_VERSION);
}
