# SPDX-License-Identifier: MIT OR Apache-2.0
"""The part of a desktop behind xdg-desktop-portal, in place of GNOME's or KDE's, whose user answers at once.

    desktop.py NODE|refuse

It gives access to the PipeWire node with this number, or refuses. Prints `ready` when it can be asked.
"""

import sys

import dbus
import dbus.mainloop.glib
import dbus.service
from gi.repository import GLib

SCREEN_CAST = "org.freedesktop.impl.portal.ScreenCast"
PROPERTIES = {"AvailableSourceTypes": dbus.UInt32(1), "AvailableCursorModes": dbus.UInt32(3), "version": dbus.UInt32(4)}


class Session(dbus.service.Object):
    @dbus.service.method("org.freedesktop.impl.portal.Session")
    def Close(self):
        print("closed", flush=True)
        self.remove_from_connection()

    @dbus.service.method(dbus.PROPERTIES_IFACE, in_signature="ss", out_signature="v")
    def Get(self, _interface, _name):
        return dbus.UInt32(1)


class Desktop(dbus.service.Object):
    def __init__(self, bus, answer):
        super().__init__(bus, "/org/freedesktop/portal/desktop")
        self.bus, self.answer = bus, answer

    @dbus.service.method(SCREEN_CAST, in_signature="oosa{sv}", out_signature="ua{sv}")
    def CreateSession(self, _handle, session, _app, _options):
        Session(self.bus, session)
        return 0, {}

    @dbus.service.method(SCREEN_CAST, in_signature="oosa{sv}", out_signature="ua{sv}")
    def SelectSources(self, _handle, _session, _app, options):
        print("cursor", int(options.get("cursor_mode", 0)), flush=True)
        return 0, {}

    @dbus.service.method(SCREEN_CAST, in_signature="oossa{sv}", out_signature="ua{sv}")
    def Start(self, _handle, _session, _app, _parent, _options):
        if self.answer == "refuse":
            return 1, {}
        stream = dbus.Struct((dbus.UInt32(int(self.answer)), dbus.Dictionary({}, signature="sv")), signature="ua{sv}")
        return 0, {"streams": dbus.Array([stream], signature="(ua{sv})")}

    @dbus.service.method(dbus.PROPERTIES_IFACE, in_signature="s", out_signature="a{sv}")
    def GetAll(self, _interface):
        return PROPERTIES

    @dbus.service.method(dbus.PROPERTIES_IFACE, in_signature="ss", out_signature="v")
    def Get(self, _interface, name):
        return PROPERTIES[name]


dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
connection = dbus.SessionBus()
name = dbus.service.BusName("org.freedesktop.impl.portal.desktop.test", connection)
desktop = Desktop(connection, sys.argv[1])
print("ready", flush=True)
GLib.MainLoop().run()
