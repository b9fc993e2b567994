#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""RTSP server for tests: gst-rtsp-server (Debian's gir1.2-gst-rtsp-server-1.0) serves an MP4 file with H.264.

    rtsp-server.py FILE [PORT]

Serves FILE from its start to each client, at rtsp://127.0.0.1:PORT/clip. PORT 0, the default, is a free port.
Prints `port PORT` when it is ready. Ends when standard input ends.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(sys.argv[2] if len(sys.argv) > 2 else "0")
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    f'( filesrc location="{sys.argv[1]}" ! qtdemux ! h264parse ! rtph264pay name=pay0 pt=96 config-interval=-1 )'
)
server.get_mount_points().add_factory("/clip", factory)
if server.attach(None) == 0:
    sys.exit("rtsp-server: the port cannot be bound")
loop = GLib.MainLoop()
GLib.io_add_watch(0, GLib.PRIORITY_DEFAULT, GLib.IOCondition.IN | GLib.IOCondition.HUP, lambda *_: loop.quit())
print(f"port {server.get_bound_port()}", flush=True)
loop.run()
