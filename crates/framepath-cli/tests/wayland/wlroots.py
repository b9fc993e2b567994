# SPDX-License-Identifier: MIT OR Apache-2.0
"""A compositor without a screen, of wlroots 0.20, which can be captured by ext-image-copy-capture only.

    wlroots.py LIBRARIES SOCKET

Has one output of one colour. Standard input has commands, one per line: `colour RED GREEN BLUE` from 0 to 1, `size WIDTH HEIGHT`, and `off`, until
the next `size`. Ends with standard input. Prints `ready` when it listens.
"""

import ctypes
import os
import sys
from ctypes import CFUNCTYPE, c_bool, c_char_p, c_float, c_int, c_uint, c_void_p

LIBRARIES, SOCKET = sys.argv[1:]
SIZE = (320, 180)
# Larger than the structure wlr_output_state.
STATE_BYTES = 4096
# Events of wl_event_loop_add_fd, and milliseconds from one frame of the output to the next.
READABLE, PERIOD = 1, 16


def library(prefix):
    name = next(name for name in os.listdir(LIBRARIES) if name.startswith(prefix))
    return ctypes.CDLL(os.path.join(LIBRARIES, name), mode=ctypes.RTLD_GLOBAL)


SERVER, WLROOTS = library("libwayland-server"), library("libwlroots")


def function(name, result, *arguments):
    found = getattr(SERVER if name.startswith("wl_") else WLROOTS, name)
    found.restype, found.argtypes = result, arguments
    return found


def make(name, *arguments):
    kinds = [c_uint if isinstance(argument, int) and argument < 1 << 16 else c_void_p for argument in arguments]
    return function(name, c_void_p, *kinds)(*arguments)


display = make("wl_display_create")
loop = make("wl_display_get_event_loop", display)
backend = make("wlr_headless_backend_create", loop)
renderer = make("wlr_pixman_renderer_create")
function("wlr_renderer_init_wl_shm", c_bool, c_void_p, c_void_p)(renderer, display)
allocator = make("wlr_allocator_autocreate", backend, renderer)
make("wlr_ext_image_copy_capture_manager_v1_create", display, 1)
make("wlr_ext_output_image_capture_source_manager_v1_create", display, 1)
function("wlr_backend_start", c_bool, c_void_p)(backend)
output = make("wlr_headless_add_output", backend, *SIZE)
function("wlr_output_init_render", c_bool, c_void_p, c_void_p, c_void_p)(output, allocator, renderer)
function("wlr_output_create_global", None, c_void_p, c_void_p)(output, display)
scene = make("wlr_scene_create")
colour = (c_float * 4)(0, 0, 1, 1)
background = function("wlr_scene_rect_create", c_void_p, c_void_p, c_int, c_int, c_void_p)(scene, 16384, 16384, colour)
shown = make("wlr_scene_output_create", scene, output)
state = ctypes.create_string_buffer(STATE_BYTES)


def configure(size):
    """Switches the output on, with this size, or off if there is none."""
    function("wlr_output_state_init", None, c_void_p)(state)
    function("wlr_output_state_set_enabled", None, c_void_p, c_bool)(state, bool(size))
    if size:
        function("wlr_output_state_set_custom_mode", None, c_void_p, c_int, c_int, c_int)(state, *size, 60000)
    assert function("wlr_output_commit_state", c_bool, c_void_p, c_void_p)(output, state)
    function("wlr_output_state_finish", None, c_void_p)(state)


@CFUNCTYPE(c_int, c_void_p)
def show(_):
    function("wlr_scene_output_commit", c_bool, c_void_p, c_void_p)(shown, None)
    return function("wl_event_source_timer_update", c_int, c_void_p, c_int)(timer, PERIOD)


@CFUNCTYPE(c_int, c_int, c_uint, c_void_p)
def command(descriptor, _mask, _data):
    lines = os.read(descriptor, 4096).decode().splitlines()
    for words in map(str.split, lines):
        if words[0] == "size":
            configure([int(words[1]), int(words[2])])
        elif words[0] == "off":
            configure(None)
        else:
            colour[:3] = [float(word) for word in words[1:]]
            function("wlr_scene_rect_set_color", None, c_void_p, c_void_p)(background, colour)
    if not lines:
        function("wl_display_terminate", None, c_void_p)(display)
    return 0


configure(SIZE)
function("wl_display_add_socket", c_int, c_void_p, c_char_p)(display, SOCKET.encode())
timer = make("wl_event_loop_add_timer", loop, ctypes.cast(show, c_void_p).value, None)
show(None)
function("wl_event_loop_add_fd", c_void_p, c_void_p, c_int, c_uint, c_void_p, c_void_p)(loop, 0, READABLE, command, None)
print("ready", flush=True)
function("wl_display_run", None, c_void_p)(display)
