/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Search for the real functions.
 *
 * dlsym(RTLD_NEXT) alone would not do: it does not find libraries that a plug-in or a Python module has brought
 * (RTLD_LOCAL), and a process may have two versions of a library. So the search begins at the object that calls.
 */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

_Atomic unsigned closed = 1;

/* Number of libraries of one kind that are searched. */
#define LIBRARIES 8

/*
 * Unloads an object as the real function does. The program could load another object to the address and call before
 * the count has changed, but only from another thread, in the time of two instructions.
 */
EXPORT int dlclose(void *handle)
{
	int (*next)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
	int result = next ? next(handle) : -1;
	atomic_fetch_add_explicit(&closed, 1, memory_order_release);
	return result;
}

/* Object (the program or a library) that contains an address. */
struct object {
	uintptr_t address;
	uintptr_t low;
	uintptr_t high;
	/* Path of the file; empty for the program. Valid while the object is loaded. */
	const char *name;
};

/* Loaded library with a name. */
struct library {
	const char *prefix;
	/* Number of libraries to leave out. */
	int skip;
	char name[1024];
};

static int is_object_of_address(struct dl_phdr_info *info, size_t size, void *data)
{
	struct object *object = data;
	uintptr_t low = UINTPTR_MAX, high = 0;
	int is_inside = 0;
	(void)size;
	for (int n = 0; n < info->dlpi_phnum; n++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[n];
		uintptr_t begin = info->dlpi_addr + header->p_vaddr;
		if (header->p_type != PT_LOAD)
			continue;
		is_inside |= object->address - begin < header->p_memsz;
		low = begin < low ? begin : low;
		high = begin + header->p_memsz > high ? begin + header->p_memsz : high;
	}
	if (is_inside) {
		object->low = low;
		object->high = high;
		object->name = info->dlpi_name ? info->dlpi_name : "";
	}
	return is_inside;
}

static int is_library(struct dl_phdr_info *info, size_t size, void *data)
{
	struct library *library = data;
	const char *name = info->dlpi_name ? info->dlpi_name : "";
	const char *slash = strrchr(name, '/');
	(void)size;
	if (strncmp(slash ? slash + 1 : name, library->prefix, strlen(library->prefix)) != 0 ||
	    strlen(name) >= sizeof(library->name) || library->skip-- > 0)
		return 0;
	strcpy(library->name, name);
	return 1;
}

/* Returns the function in the loaded object `name` or in the libraries that it needs. */
static void *in_object(const struct function *function, const char *name)
{
	int (*close)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
	void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
	void *found = handle ? dlsym(handle, function->name) : NULL;
	/* The object stays loaded: it was loaded before. */
	if (handle && close)
		close(handle);
	return found == function->own ? NULL : found;
}

static void *search(const struct function *function, const struct object *object)
{
	void *found = NULL;
	/* As the loader does it for a plug-in with libraries of its own. */
	if (object->name && object->name[0])
		found = in_object(function, object->name);
	/* As the loader does it for the program itself. */
	if (!found)
		found = dlsym(RTLD_NEXT, function->name);
	if (found == function->own)
		found = NULL;
	/* The call may be the last act of a function in a library, which looks like a call from the library's caller. */
	for (int skip = 0; !found && skip < LIBRARIES; skip++) {
		struct library library = {.prefix = function->library, .skip = skip};
		/* Not in the callback, where a look-up could wait for a thread that waits for this one. */
		if (!dl_iterate_phdr(is_library, &library))
			break;
		found = in_object(function, library.name);
	}
	return found;
}

/* Stores what was looked up when `closed` was `before`. Any entry will do if none is free. */
static void store(struct function *function, const struct object *object, void *next, unsigned before)
{
	struct caller *caller = &function->callers[object->low / 4096 % CALLERS];
	for (int n = 0; n < CALLERS; n++) {
		struct caller *one = &function->callers[n];
		if (atomic_load_explicit(&one->closed, memory_order_relaxed) != before) {
			caller = one;
			break;
		}
	}
	unsigned version = atomic_load_explicit(&caller->version, memory_order_relaxed);
	atomic_store_explicit(&caller->version, version + 1, memory_order_relaxed);
	/* Release: a reader that sees a new field sees the odd version, too. */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&caller->closed, before, memory_order_relaxed);
	atomic_store_explicit(&caller->low, object->low, memory_order_relaxed);
	atomic_store_explicit(&caller->bytes, object->high - object->low, memory_order_relaxed);
	atomic_store_explicit(&caller->next, next, memory_order_relaxed);
	atomic_store_explicit(&caller->version, version + 2, memory_order_release);
}

void *look_up(struct function *function, uintptr_t from)
{
	struct object object = {.address = from};
	Dl_info info;
	int saved = errno;
	/* Acquire: pairs with the release in dlclose, behind the change of the loaded objects. */
	unsigned before = atomic_load_explicit(&closed, memory_order_acquire);
	dl_iterate_phdr(is_object_of_address, &object);
	void *found = search(function, &object);
	/* The real function must not go away while its address is stored, so its library stays loaded. */
	if (found && dladdr(found, &info) && info.dli_fname)
		dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	/* Without the error of a search here, which the program could take for its own. */
	dlerror();
	/* A thread that finds another one here, also one that a fork has left behind, looks up its next call again. */
	if (found && object.low && !atomic_flag_test_and_set_explicit(&function->is_changing, memory_order_acquire)) {
		store(function, &object, found, before);
		atomic_flag_clear_explicit(&function->is_changing, memory_order_release);
	}
	errno = saved;
	return found;
}
