// SPDX-License-Identifier: MIT OR Apache-2.0

// Command restarts is a WHIP server with one session, by Pion, which takes restarts of ICE (RFC 9725, section 4.3). It listens at the
// address of its only argument, and writes a line when a session has its first packet, when ICE restarts, and when the first packet
// arrives from another address.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/pion/webrtc/v4"
)

var (
	session *webrtc.PeerConnection
	offer   string
)

func isICE(line string) bool {
	for _, name := range []string{"a=ice-ufrag:", "a=ice-pwd:", "a=candidate:", "a=end-of-candidates"} {
		if strings.HasPrefix(line, name) {
			return true
		}
	}
	return false
}

// answer accepts an offer, and returns the answer with all candidates.
func answer(offer string) (string, error) {
	if err := session.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
		return "", err
	}
	local, err := session.CreateAnswer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(session)
	if err := session.SetLocalDescription(local); err != nil {
		return "", err
	}
	<-gathered
	return session.LocalDescription().SDP, nil
}

// source returns the address from which the session's packets come.
func source() string {
	pair, err := session.SCTP().Transport().ICETransport().GetSelectedCandidatePair()
	if err != nil || pair == nil {
		return ""
	}
	return pair.Remote.Address
}

func open(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	offer = string(body)
	if session, err = webrtc.NewPeerConnection(webrtc.Configuration{}); err != nil {
		return err
	}
	session.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		last := ""
		for {
			if _, _, err := track.ReadRTP(); err != nil {
				return
			}
			if from := source(); from != last {
				fmt.Println("packets from", from)
				last = from
			}
		}
	})
	text, err := answer(offer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/sdp")
	w.Header().Set("Location", "/session")
	w.Header().Set("ETag", `"0"`)
	w.WriteHeader(http.StatusCreated)
	_, err = io.WriteString(w, text)
	return err
}

func restart(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.Header.Get("If-Match") != "*" || r.Header.Get("Content-Type") != "application/trickle-ice-sdpfrag" {
		return fmt.Errorf("headers: %v", r.Header)
	}
	var merged, part strings.Builder
	for _, line := range strings.Split(offer, "\r\n") {
		if line != "" && !isICE(line) {
			merged.WriteString(line + "\r\n")
		}
		if strings.HasPrefix(line, "a=mid:") {
			for _, line := range strings.Split(string(body), "\r\n") {
				if isICE(line) {
					merged.WriteString(line + "\r\n")
				}
			}
		}
	}
	offer = merged.String()
	text, err := answer(offer)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(text, "\r\n") {
		if isICE(line) || strings.HasPrefix(line, "m=") || strings.HasPrefix(line, "a=mid:") {
			part.WriteString(line + "\r\n")
		}
	}
	fmt.Println("restart")
	w.Header().Set("Content-Type", "application/trickle-ice-sdpfrag")
	w.Header().Set("ETag", `"1"`)
	_, err = io.WriteString(w, part.String())
	return err
}

func main() {
	handle := func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch r.Method {
		case http.MethodPost:
			err = open(w, r)
		case http.MethodPatch:
			err = restart(w, r)
		case http.MethodDelete:
			fmt.Println("end")
		default:
			err = fmt.Errorf("method %s", r.Method)
		}
		if err != nil {
			fmt.Println("error:", err)
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}
	log.Fatal(http.ListenAndServe(os.Args[1], http.HandlerFunc(handle)))
}
