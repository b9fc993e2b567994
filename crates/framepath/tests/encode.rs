// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stage `encode`: its packets decode to the frames that went in, leave without delay, and follow requests.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use framepath::ledger::flag;
use framepath::{
    Frame, HopFailure, Item, Level, Options, Out, Pipeline, Report, Request, Requests, RunError, SeekTo,
    Stage, StageError, StreamInfo,
};
use framepath_testkit::pipeline::{at, run, try_run};
use framepath_testkit::{clip, ffmpeg, md5_lines};

const CODECS: [&str; 5] = ["h264", "hevc", "vp8", "vp9", "av1"];

/// Makes a video of `seconds` with B-frames, 30000/1001 pictures per second, and colours of HDR.
fn video(folder: &tempfile::TempDir, seconds: u32) -> String {
    let file = folder.path().join("source.mp4").to_str().unwrap().to_owned();
    let picture = format!("testsrc2=s=320x180:r=30000/1001:d={seconds},format=yuv420p,setsar=4/3");
    let colors = ["-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc"];
    let mut arguments =
        vec!["-f", "lavfi", "-i", &picture, "-c:v", "libx264", "-bf", "2", "-color_range", "tv"];
    arguments.extend(colors);
    arguments.push(&file);
    ffmpeg(&arguments);
    file
}

/// Runs `text` and then `framemd5`, and returns the lines of its file.
fn hashes(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("md5").to_str().unwrap().to_owned();
    run(&format!("{text} ! framemd5 {file}"), &Options::default());
    md5_lines(&fs::read_to_string(file).unwrap())
}

/// Frames with their times, colours and luma.
type Pictures = Vec<(Option<i64>, framepath::colors::Colors, Vec<u8>)>;

fn pictures(text: &str) -> Pictures {
    let pictures = Arc::new(Mutex::new(Pictures::new()));
    let kept = pictures.clone();
    let keep = move |frame: Frame| {
        let picture = (frame.meta().pts, frame.layout().colors, frame.plane(0).to_vec());
        kept.lock().unwrap().push(picture);
    };
    let report = Pipeline::parse(text).unwrap().sink_fn(keep).run(&Options::default()).unwrap();
    assert!(report.error.is_none(), "{text}: {:?}", report.error);
    drop(report);
    Arc::into_inner(pictures).unwrap().into_inner().unwrap()
}

/// Returns the peak signal-to-noise ratio of two planes of 8 bits, decibels.
fn psnr(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
    let error = a.iter().zip(b).map(square).sum::<f64>() / a.len() as f64;
    10.0 * (255.0 * 255.0 / error.max(1e-9)).log10()
}

#[test]
fn packets_decode_to_the_frames_with_times_and_colours() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("file {} ! decode", video(&folder, 1));
    let before = pictures(&source);
    assert_eq!(before.len(), 30);
    for codec in CODECS {
        let after = pictures(&format!("{source} ! encode {codec} bitrate=4M ! decode"));
        assert_eq!(after.len(), before.len(), "{codec}");
        for (number, (was, is)) in before.iter().zip(&after).enumerate() {
            assert_eq!(is.0, was.0, "{codec}: time of frame {number}");
            let ratio = psnr(&was.2, &is.2);
            assert!(ratio > 25.0, "{codec}: frame {number}: {ratio} dB");
            // VP8 has no colours; VP9 has a matrix and a range.
            match codec {
                "vp8" => {}
                "vp9" => assert_eq!((is.1.matrix, is.1.range), (was.1.matrix, was.1.range), "{codec}"),
                _ => assert_eq!(is.1, was.1, "{codec}"),
            }
        }
    }
}

#[test]
fn quality_0_is_lossless() {
    let source = format!("file {} ! decode", clip("vp9-180p8.ivf"));
    let deep = format!("file {} ! decode", clip("vp9-180p10.ivf"));
    let (expected, expected_deep) = (hashes(&source), hashes(&deep));
    for codec in ["h264", "hevc", "vp9"] {
        assert_eq!(hashes(&format!("{source} ! encode {codec} crf=0 ! decode")), expected, "{codec}");
    }
    assert_eq!(hashes(&format!("{deep} ! encode h264 crf=0 ! decode")), expected_deep, "10 bits");
}

/// Returns the size of the file that `mux` makes of the packets of `text`, bytes.
fn muxed_bytes(text: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.mkv");
    run(&format!("{text} ! mux {}", file.display()), &Options::default());
    fs::metadata(file).unwrap().len()
}

#[test]
fn a_quality_besides_a_bit_rate_saves_bits() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("file {} ! decode", video(&folder, 2));
    for (codec, worst) in [("h264", 51), ("hevc", 51), ("vp8", 63), ("vp9", 63), ("av1", 63)] {
        let bytes = |options: &str| muxed_bytes(&format!("{source} ! encode {codec} {options} threads=1"));
        let (constant, limited) = (bytes("bitrate=4M"), bytes(&format!("bitrate=4M crf={worst}")));
        assert!(limited < constant / 2, "{codec}: {limited} of {constant} bytes");
        // The bit rate stays the limit of a better quality.
        let (low, better) = (bytes("bitrate=300k"), bytes("bitrate=300k crf=12"));
        assert!(better < low * 2, "{codec}: {better} and {low} bytes");
    }
    let worse = error_of("test ! encode h264 bitrate=4M crf=52 ! null");
    assert!(worse.contains("crf: libx264 takes 0 to 51"), "{worse}");
}

#[test]
fn queues_do_not_change_the_packets() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("file {} ! decode", video(&folder, 1));
    let inline = hashes(&format!("{source} ! encode h264 bitrate=2M threads=1 ! decode"));
    assert_eq!(inline.len(), 30);
    let queued = hashes(&format!("{source} ! queue ! encode h264 bitrate=2M threads=1 ! queue ! decode"));
    assert_eq!(queued, inline);
}

/// Stage that passes items on, and checks that the sink got one item for each of them before the next one.
struct CheckDelay {
    received: Arc<AtomicU64>,
    sent: u64,
}

impl Stage for CheckDelay {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.sent += 1;
        out.push(item)?;
        assert_eq!(self.received.load(Ordering::Relaxed), self.sent);
        Ok(())
    }
}

/// Properties of a packet: number, key flag, bytes.
type PacketRecord = (u64, bool, Vec<u8>);

/// Sink that keeps a record of each packet, and sends requests when packets arrive.
struct RequestingSink {
    /// Requests, each with the number of the packet whose arrival causes it.
    requests: Vec<(u64, Request)>,
    received: Arc<AtomicU64>,
    records: Arc<Mutex<Vec<PacketRecord>>>,
}

impl Stage for RequestingSink {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let packet = item.into_packet().map_err(|error| out.fail(error))?;
        let seq = packet.meta().seq;
        self.records.lock().unwrap().push((seq, packet.is_key(), packet.bytes().unwrap().to_vec()));
        self.received.fetch_add(1, Ordering::Relaxed);
        for (_, request) in self.requests.iter().filter(|(at, _)| *at == seq) {
            out.request(*request).map_err(|error| out.fail(StageError::Option(error.to_string())))?;
        }
        Ok(())
    }
}

/// Encodes the frames of `source` by `encode`, with requests at packets, and returns the packets' records. Checks that
/// no packet is late.
fn encoded(source: &str, encode: &str, requests: &[(u64, Request)]) -> Vec<PacketRecord> {
    let received = Arc::new(AtomicU64::new(0));
    let records = Arc::default();
    let sink = RequestingSink {
        requests: requests.into(),
        received: received.clone(),
        records: Arc::clone(&records),
    };
    let pipeline = Pipeline::parse(source).unwrap().stage(CheckDelay { received, sent: 0 });
    let report = pipeline.append(encode).unwrap().sink(sink).run(&Options::default()).unwrap();
    assert!(report.error.is_none(), "{encode}: {:?}", report.error);
    let records = records.lock().unwrap();
    assert_eq!(
        records.iter().map(|record| record.0).collect::<Vec<_>>(),
        (0..report.frames).collect::<Vec<_>>()
    );
    records.clone()
}

const TEST: &str = "test frames=40 size=320x180 format=yuv420p";

#[test]
fn a_packet_leaves_with_its_frame_and_a_requested_keyframe_is_the_next() {
    for codec in CODECS {
        for threads in ["threads=1", "threads=3"] {
            let encode = format!("encode {codec} gop=inf {threads}");
            let records = encoded(TEST, &encode, &[(11, Request::Keyframe), (30, Request::Keyframe)]);
            let keys: Vec<u64> = records.iter().filter(|(_, key, _)| *key).map(|(seq, ..)| *seq).collect();
            assert_eq!(keys, [0, 12, 31], "{encode}");
        }
    }
}

#[test]
fn keyframes_come_by_the_gop() {
    for codec in CODECS {
        let records = encoded(TEST, &format!("encode {codec} gop=16 bitrate=1M"), &[]);
        let keys: Vec<u64> = records.iter().filter(|(_, key, _)| *key).map(|(seq, ..)| *seq).collect();
        assert_eq!(keys, [0, 16, 32], "{codec}");
    }
}

/// True if the H.264 packet `bytes` has a slice of an IDR picture.
fn has_idr(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|unit| unit[..3] == [0, 0, 1] && unit[3] & 0x1f == 5)
}

#[test]
fn a_refresh_by_columns_has_no_idr_pictures_but_requested_ones() {
    let encode = "encode h264 gop=16 bitrate=1M intra_refresh=1";
    let records = encoded(TEST, encode, &[(19, Request::Keyframe)]);
    let idr: Vec<u64> = records.iter().filter(|record| has_idr(&record.2)).map(|(seq, ..)| *seq).collect();
    assert_eq!(idr, [0, 20]);
    let records = encoded(TEST, "encode hevc gop=16 bitrate=1M intra_refresh=1", &[]);
    assert_eq!(records.iter().filter(|(_, key, _)| *key).count(), 1);
}

#[test]
fn the_bit_rate_follows_requests() {
    let folder = tempfile::tempdir().unwrap();
    // Noise needs as many bits as the encoder may spend.
    let file = folder.path().join("noise.mkv").to_str().unwrap().to_owned();
    let noise = "color=gray:s=320x180:r=30:d=4,noise=alls=40:allf=t,format=yuv420p";
    ffmpeg(&["-f", "lavfi", "-i", noise, "-c:v", "ffv1", &file]);
    for codec in CODECS {
        let encode = format!("encode {codec} bitrate=400k gop=inf");
        let requests = [(39, Request::BitRate(1_600_000)), (79, Request::BitRate(400_000))];
        let records = encoded(&format!("file {file} ! decode host=inline"), &encode, &requests);
        // Without the first packets behind a change, in which a keyframe may be.
        let bytes =
            |from: usize, to: usize| records[from..to].iter().map(|record| record.2.len()).sum::<usize>();
        let (low, high, again) = (bytes(10, 40), bytes(50, 80), bytes(90, 120));
        assert!(high > 2 * low && high > 2 * again, "{codec}: {low}, {high}, {again} bytes");
        let keys: Vec<u64> = records.iter().filter(|(_, key, _)| *key).map(|(seq, ..)| *seq).collect();
        // x264 changes its rate; the others are opened again.
        let expected: &[u64] = if codec == "h264" { &[0] } else { &[0, 40, 80] };
        assert_eq!(keys, expected, "{codec}");
    }
}

#[test]
fn the_bandwidth_limits_the_bit_rate_down_to_the_lowest() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise.mkv").to_str().unwrap().to_owned();
    let noise = "color=gray:s=320x180:r=30:d=4,noise=alls=40:allf=t,format=yuv420p";
    ffmpeg(&["-f", "lavfi", "-i", noise, "-c:v", "ffv1", &file]);
    let source = format!("file {file} ! decode host=inline");
    for codec in ["h264", "vp8"] {
        let encode = format!("encode {codec} bitrate=1600k min_bitrate=400k gop=inf");
        // The second one is far below the lowest, and the last one above the highest.
        let requests = [(9, 1_500_000), (39, 1_000), (79, 1_000_000_000)];
        let requests = requests.map(|(at, bits)| (at, Request::Bandwidth(bits)));
        let records = encoded(&source, &encode, &requests);
        let bytes =
            |from: usize, to: usize| records[from..to].iter().map(|record| record.2.len()).sum::<usize>();
        let (high, low, again) = (bytes(10, 40), bytes(50, 80), bytes(90, 120));
        assert!(high > 2 * low && again > 2 * low, "{codec}: {high}, {low}, {again} bytes");
        assert!(low > 400_000 / 8 / 2, "{codec}: {low} bytes in a second");
        if codec == "h264" {
            // The network carries a frame in a frame interval.
            let largest =
                |from: usize, to: usize| records[from..to].iter().map(|record| record.2.len()).max();
            let interval = 400_000 / 8 / 30;
            println!("{:?} {:?} {:?} {interval}", largest(10, 40), largest(50, 80), largest(90, 120));
            assert!(largest(50, 80).is_some_and(|bytes| bytes <= interval * 5 / 4), "{:?}", largest(50, 80));
        }
        let keys: Vec<u64> = records.iter().filter(|(_, key, _)| *key).map(|(seq, ..)| *seq).collect();
        // VP8's encoder is opened again, but not for the small change.
        let expected: &[u64] = if codec == "h264" { &[0] } else { &[0, 40, 80] };
        assert_eq!(keys, expected, "{codec}");
    }
}

/// Stage that passes items on, and ends the congestion behind an item.
struct EndCongestion {
    at: u64,
    requests: Requests,
}

impl Stage for EndCongestion {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if item.meta().seq == self.at {
            self.requests.send(Request::Congested(false)).unwrap();
        }
        out.push(item)
    }
}

#[test]
fn frames_are_dropped_in_front_of_the_encoder_during_congestion() {
    let records = Arc::default();
    let requests = vec![(10, Request::Congested(true))];
    let sink = RequestingSink { requests, received: Arc::default(), records: Arc::clone(&records) };
    let pipeline = Pipeline::parse(TEST).unwrap();
    let end = EndCongestion { at: 20, requests: pipeline.requests() };
    let report = pipeline
        .stage(end)
        .append("encode h264 gop=inf")
        .unwrap()
        .sink(sink)
        .run(&Options::default())
        .unwrap();
    let seqs: Vec<u64> = records.lock().unwrap().iter().map(|record: &PacketRecord| record.0).collect();
    assert_eq!(seqs, (0..=10).chain(21..40).collect::<Vec<_>>());
    assert_eq!((report.congested, report.dropped, report.losses().len()), (10, 0, 0));
    let dropped = report.rows.iter().filter(|row| row.has(flag::DROPPED | flag::CONGESTED));
    assert_eq!(dropped.map(|row| row.seq).collect::<Vec<_>>(), (11..=20).collect::<Vec<_>>());
    let mut table = Vec::new();
    framepath::export::csv::write(&report, &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert_eq!(table.lines().filter(|line| line.contains(",congestion,")).count(), 10);
    let note = "encode: dropped 10 frames before they were encoded, because of congestion";
    assert!(report.notes.iter().any(|line| line.starts_with(note)), "{:?}", report.notes);
}

#[test]
fn a_repeated_file_and_a_seek_restart_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let file = video(&folder, 1);
    let once = hashes(&format!("file {file} ! decode"));
    let path = "decode ! encode h264 crf=0 ! decode";
    assert_eq!(hashes(&format!("file {file} loop=2 ! {path}")), [once.clone(), once].concat());

    let mut frames = Pipeline::parse(&format!("file {file} ! {path}")).unwrap().frames().unwrap();
    let first: Vec<_> = frames.by_ref().take(10).map(|frame| frame.unwrap().plane(0).to_vec()).collect();
    frames.seek(std::time::Duration::ZERO, SeekTo::Exact).unwrap();
    let again: Vec<_> = frames.map(|frame| frame.unwrap().plane(0).to_vec()).collect();
    assert_eq!((again.len(), &again[..10]), (30, &first[..]));
}

#[test]
fn frames_that_change_size_get_a_new_encoder() {
    let source = format!("file {} ! decode", clip("vp9-resize-180p8.ivf"));
    assert_eq!(hashes(&format!("{source} ! encode h264 crf=0 ! decode")), hashes(&source));
}

#[test]
fn each_frame_has_a_row_of_the_encoder_and_nothing_is_copied() {
    for threads in [1, 3] {
        let text = format!("{TEST} ! encode h264 threads={threads} ! null");
        let mut report = run(&text, &at(Level::Full));
        let rows: Vec<_> = report.rows.iter().filter(|row| row.hop == 1).collect();
        assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        for row in rows {
            let of_frame =
                |hop: u16| report.rows.iter().find(|other| (other.hop, other.seq) == (hop, row.seq)).unwrap();
            assert_eq!((of_frame(0).leave_ns, of_frame(2).enter_ns), (row.enter_ns, row.leave_ns));
            assert_eq!(row.pool_ns > 0, threads > 1);
        }
        assert_eq!(report.copied_bytes, 0);
        assert_eq!(report.digest().frames, 40);
    }
}

/// Returns the text of the error that ends the run of `text`, before it starts or during it.
fn error_of(text: &str) -> String {
    let error = |report: Report| report.error.unwrap_or_else(|| panic!("{text}: no error"));
    try_run(text, &Options::default()).map_or_else(|error| error, error).to_string()
}

#[test]
fn what_an_encoder_does_not_take_is_an_error_with_advice() {
    let test = |size: &str, format: &str, encode: &str| {
        error_of(&format!("test frames=2 size={size} format={format} ! encode {encode} ! null"))
    };
    assert_eq!(
        test("64x48", "rgba", "h264"),
        "encode h264: libx264 does not take RGBA frames; put `convert format=yuv420p` in front"
    );
    assert_eq!(
        test("64x48", "p010", "vp9"),
        "encode vp9: libvpx-vp9 does not take P010 frames; put `convert format=yuv420p10` in front"
    );
    assert_eq!(
        test("65x47", "yuv420p", "h264"),
        "encode h264: libx264 does not take YUV420P pictures of 65x47 pixels, because a side is odd; put `crop \
         roi=0,0,64,46` or `scale` in front"
    );
    assert_eq!(
        run("test frames=2 size=65x47 format=yuv420p ! encode vp8 ! null", &Options::default()).frames,
        2
    );
    assert_eq!(test("64x48", "nv12", "h264 crf=52"), "encode h264 crf=52: crf: libx264 takes 0 to 51");
    assert_eq!(
        test("64x48", "yuv420p", "vp9 intra_refresh=1"),
        "encode vp9 intra_refresh=yes: intra_refresh: libvpx-vp9 cannot do this; only libx264 and libx265 can"
    );
    assert_eq!(
        test("64x48", "nv12", "raw bitrate=1M"),
        "encode raw bitrate=1M: bitrate= is not for `encode raw`"
    );
    assert_eq!(test("64x48", "nv12", "h264 copy=1"), "encode h264 copy=yes: copy= is only for `encode raw`");
    assert_eq!(
        test("64x48", "nv12", "h264 api=vaapi host=process"),
        "encode h264 api=vaapi host=process: api=vaapi cannot run in a worker, whose sandbox denies the \
         hardware; leave host=process out, or use api=software"
    );
    assert!(
        error_of(&format!("file {} ! encode h264 ! null", clip("vp9-180p8.ivf")))
            .contains("put `decode` before it")
    );
    assert!(test("64x48", "nv12", "vp9 api=nvenc").ends_with("has no nvenc encoder of vp9"));
    for (text, fits) in
        [("4M", true), ("800k", true), ("1.5M", true), ("4m", false), ("4", false), ("2000M", false)]
    {
        let parsed = framepath::path::parse(&format!("test ! encode h264 bitrate={text} ! null"));
        assert_eq!(parsed.is_ok(), fits, "{text}");
    }
}

#[test]
fn missing_hardware_is_an_error_or_with_auto_a_note() {
    let has = |folder: &str, prefix: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
    };
    if has("/dev/dri", "renderD") || has("/dev", "nvidia") || has("/dev", "video") {
        return;
    }
    let test = |api: &str| format!("test frames=3 size=64x48 ! encode h264 api={api} ! null");
    for (api, node) in [("vaapi", "/dev/dri/renderD*"), ("nvenc", "/dev/nvidia*"), ("v4l2m2m", "/dev/video*")]
    {
        let error = error_of(&test(api));
        let expected = format!("h264_{api}: cannot open the encoder: no device: no {node}");
        assert!(error.ends_with(&expected), "{error}");
    }
    let report = run(&test("auto"), &Options::default());
    assert_eq!(report.frames, 3);
    assert!(
        report.notes.iter().any(|note| note.starts_with("encode api=auto: in software, because ")),
        "{:?}",
        report.notes
    );
}

#[test]
fn a_run_that_stops_passes_on_all_packets() {
    let options = Options { frames: Some(7), ..Options::default() };
    let report: Result<Report, RunError> = try_run(&format!("{TEST} ! encode hevc ! null"), &options);
    assert_eq!(report.unwrap().frames, 7);
}
