// SPDX-License-Identifier: MIT OR Apache-2.0
//! Playlists disguised as videos open no other file.

use std::fs;
use std::path::Path;

use rustix::fs::inotify;

use crate::ffmpeg;
use framepath_testkit::{in_checkout, run};

/// Disguised playlists: the file name, the content, and libavformat's name of the real format,
/// empty if libavformat does not know the format. In the content, OTHER is replaced by the path of a
/// video, FIFO by a pipe without a writer, and SELF by the playlist.
const DISGUISES: [(&str, &str, &str); 12] = [
    ("hls.mp4", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\nOTHER\n#EXT-X-ENDLIST\n", "hls"),
    ("hls-pipe.mp4", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\nFIFO\n#EXT-X-ENDLIST\n", "hls"),
    (
        "hls-key.mp4",
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-KEY:METHOD=AES-128,URI=\"OTHER\"\n#EXT-X-MAP:URI=\"OTHER\"\n#EXTINF:1.0,\nOTHER\n#EXT-X-ENDLIST\n",
        "hls",
    ),
    (
        "hls-master.mkv",
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nSELF\n#EXT-X-STREAM-INF:BANDWIDTH=2000\nOTHER\n",
        "hls",
    ),
    (
        "dash.mp4",
        "<?xml version=\"1.0\"?>\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"static\" profiles=\"urn:mpeg:dash:profile:isoff-on-demand:2011\" mediaPresentationDuration=\"PT1S\">\n<Period><AdaptationSet contentType=\"video\"><Representation id=\"0\" mimeType=\"video/mp4\"><BaseURL>OTHER</BaseURL></Representation></AdaptationSet></Period></MPD>\n",
        "dash",
    ),
    ("concat.mp4", "ffconcat version 1.0\nfile 'other.mp4'\n", "concat"),
    ("concat-self.mp4", "ffconcat version 1.0\nfile 'concat-self.mp4'\n", "concat"),
    ("concat-pipe.mp4", "ffconcat version 1.0\nfile 'fifo'\n", "concat"),
    (
        "session.mp4",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
        "sdp",
    ),
    (
        "titles.idx",
        "# VobSub index file, v7 (do not modify this line!)\nsize: 720x576\nid: en, index: 0\ntimestamp: 00:00:01:000, filepos: 000000000\n",
        "vobsub",
    ),
    (
        "asset.mp4",
        "<?xml version=\"1.0\"?>\n<CompositionPlaylist xmlns=\"http://www.smpte-ra.org/schemas/2067-3/2016\"><Id>urn:uuid:1</Id></CompositionPlaylist>\n",
        "",
    ),
    ("stream.mp4", "[Reference]\nRef1=OTHER\nRTSPtext\nrtsp://127.0.0.1:1/x\n", ""),
];

#[test]
fn disguised_playlists_open_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.mp4");
    let fifo = folder.path().join("fifo");
    ffmpeg(&["-i", &word(&in_checkout("clips/h264-180p8-container.mp4")), "-c", "copy", &word(&other)]);
    // The demuxer vobsub would open this file beside its index.
    fs::copy(&other, folder.path().join("titles.sub")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for (name, text, _) in DISGUISES {
        let own = folder.path().join(name);
        let text = text.replace("OTHER", &word(&other)).replace("FIFO", &word(&fifo));
        fs::write(&own, text.replace("SELF", &word(&own))).unwrap();
    }
    // The following run opens a file, which proves that the watch works.
    let watch = Watch::new(folder.path());
    for (name, _, format) in DISGUISES {
        for host in ["inline", "process"] {
            let file = word(&folder.path().join(name));
            let ran = run(&["run", &format!("file {file} ! decode host={host} ! framemd5 -")]).ended(1);
            assert!(!ran.stdout.contains(", "), "frames of {name}: {ran:#?}");
            assert!(ran.stderr.contains(format), "{name} is known as {format}: {ran:#?}");
            assert_eq!(watch.opened(), vec![name.to_owned()], "{name} host={host}");
        }
    }
    run(&["run", &format!("file {} ! decode host=process ! null", word(&other))]).ended(0);
    assert_eq!(watch.opened(), ["other.mp4"]);
}

/// inotify(7) watch that records opened files of a folder.
struct Watch(std::os::fd::OwnedFd);

impl Watch {
    fn new(folder: &Path) -> Watch {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).unwrap();
        inotify::add_watch(&watch, folder, inotify::WatchFlags::OPEN).unwrap();
        Watch(watch)
    }

    /// Returns the names of the files that were opened since the last call, each once.
    fn opened(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        while let Ok(event) = events.next() {
            let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
            names.extend(name.filter(|name| !name.is_empty()));
        }
        names.sort();
        names.dedup();
        names
    }
}

fn word(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}
