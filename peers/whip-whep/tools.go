// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build tools

// Package tools pins the version of Pion's WHIP and WHEP server.
package tools

import _ "github.com/pion/webrtc/v4/examples/whip-whep"
