// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipelines of `gst-launch-1.0`.

use framepath_testkit::clip;
use framepath_testkit::harness::{Tested, needs_program};

use crate::{needs_bpf, stages, trace, trace_at};

fn pipeline(words: &str) -> serde_json::Value {
    let words: Vec<&str> = words.split(' ').collect();
    trace(&[&["gst-launch-1.0", "-q"], &words[..]].concat())
}

pub(crate) fn a_pipeline_has_the_elements_as_stages() -> Tested {
    needs_bpf()?;
    needs_program("gst-launch-1.0", "gstreamer1.0-tools")?;
    let file = clip("h264-180p8-container.mp4");
    let figures = pipeline(&format!(
        "filesrc location={file} ! qtdemux ! h264parse ! avdec_h264 ! queue ! videoconvert ! \
         video/x-raw,format=RGB ! fakesink sync=true"
    ));
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{figures}");
    assert_eq!(rows[0]["frames"], 30);
    assert_eq!(rows[0]["contender"], "qtdemux0 to fakesink0");
    let names = stages(&rows[0]);
    assert_eq!(names, ["h264parse0", "avdec_h264-0", "queue0", "videoconvert0", "capsfilter0", "fakesink0"]);
    let cause =
        |stage: usize, cause: &str| rows[0]["hops"][stage]["causes_us"][cause].as_f64().unwrap_or(0.0);
    // The sink waits for the time of each frame, and the frames in front of it wait for the sink.
    assert!(cause(5, "paced") > 0.0 && cause(2, "queue") > 0.0, "{figures}");
    assert!(cause(3, "compute") > 0.0 && cause(3, "queue") == 0.0, "{figures}");
    Ok(())
}

pub(crate) fn the_branches_of_a_tee_are_kept_apart() -> Tested {
    needs_bpf()?;
    needs_program("gst-launch-1.0", "gstreamer1.0-tools")?;
    let figures = pipeline(
        "videotestsrc num-buffers=40 ! tee name=t ! queue ! fakesink t. ! queue ! videoflip method=clockwise ! \
         fakesink",
    );
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{figures}");
    assert!(rows.iter().all(|row| row["frames"] == 40), "{figures}");
    let mut ways: Vec<_> = rows.iter().map(stages).collect();
    ways.sort_by_key(Vec::len);
    assert_eq!(ways[0][0], "t");
    assert!(ways[0].last() != ways[1].last() && ways[1].contains(&"videoflip0"), "{ways:?}");
    Ok(())
}

/// Payloaders push lists, most depayloaders single buffers: without the lists, no way leads through the depayloader. The
/// lists are read at places in the library's own struct at level `bpf`, and by its functions at level `preload`.
pub(crate) fn lists_of_packets_are_the_frames_that_they_are_made_of() -> Tested {
    needs_bpf()?;
    needs_program("gst-launch-1.0", "gstreamer1.0-tools")?;
    // Lists of up to 25 packets, which do not fit into the library's struct, and through a queue.
    for pipeline in [
        "jpegenc ! rtpjpegpay ! rtpjpegdepay ! jpegdec ! fakesink",
        "rtpvrawpay ! rtpvrawdepay ! videoconvert ! fakesink",
        "rtpvrawpay chunks-per-frame=4 ! queue ! rtpvrawdepay ! videoconvert ! fakesink",
    ] {
        let elements = format!(
            "videotestsrc num-buffers=60 ! video/x-raw,format=I420,width=320,height=240 ! {pipeline}"
        );
        let words: Vec<&str> = ["gst-launch-1.0", "-q"].into_iter().chain(elements.split(' ')).collect();
        let figures = ["bpf", "preload"].map(|level| trace_at(level, "best", &words));
        for figures in &figures {
            let rows = figures["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 1, "{pipeline}: {figures}");
            assert_eq!(rows[0]["frames"], 60, "{pipeline}: {figures}");
            let mut wanted: Vec<&str> =
                pipeline.split(" ! ").filter_map(|element| element.split(' ').next()).collect();
            wanted.insert(0, "capsfilter");
            let names: Vec<&str> =
                stages(&rows[0]).into_iter().map(|name| name.trim_end_matches(char::is_numeric)).collect();
            assert_eq!(names, wanted, "{figures}");
        }
    }
    Ok(())
}
