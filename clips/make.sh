#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Generates the committed clips again: all clips, or those whose file names match
# one of the shell patterns:
#
#     clips/make.sh
#     clips/make.sh 'hard-*' vp9-1080p8.ivf
#
# Sources are lavfi with fixed seeds and containers are written bit-exactly, so one
# build of ffmpeg and its encoders always makes the same bytes. Another version
# makes other bytes: commit the changed clips together with the version in
# clips/README.md.
set -euo pipefail
cd "$(dirname "$0")"

wanted=("$@")
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

# wants FILE: succeeds if FILE matches a pattern, or if there are no patterns.
wants() {
    local pattern
    ((${#wanted[@]})) || return 0
    for pattern in "${wanted[@]}"; do
        # shellcheck disable=SC2053 # the right side is a pattern
        [[ $1 == $pattern ]] && return 0
    done
    return 1
}

# encode ARGUMENT... FILE: runs ffmpeg for FILE.
encode() {
    [[ ${*: -1} == /dev/null ]] || echo "clips/make.sh: ${*: -1}" >&2
    SVT_LOG=1 nice -n 10 ffmpeg -hide_banner -loglevel error -nostdin -y \
        "${@:1:$#-1}" -fflags +bitexact -flags:v +bitexact "${@: -1}"
}

# ff ARGUMENT... FILE: runs ffmpeg for FILE if FILE is wanted.
ff() {
    ! wants "${@: -1}" || encode "$@"
}

# two_pass ARGUMENT... FILE: does the work of ff in two passes: libvpx plans hidden
# alternate references only for pictures that it has analysed in a first pass.
two_pass() {
    wants "${@: -1}" || return 0
    encode "${@:1:$#-1}" -pass 1 -passlogfile "$parts/pass" -f null /dev/null
    encode "${@:1:$#-1}" -pass 2 -passlogfile "$parts/pass" "${@: -1}"
}

# ---- 1080p, 30 frames a second, 150 frames: the commands of daedalus-v4l2 ----
# The 10-bit clip has the first command with a 10-bit format.

testsrc=(-f lavfi -i 'testsrc=duration=5:size=1920x1080:rate=30')

ff "${testsrc[@]}" -pix_fmt yuv420p -c:v libvpx-vp9 -cpu-used 8 vp9-1080p8.ivf
ff "${testsrc[@]}" -pix_fmt yuv420p -c:v libsvtav1 -preset 12 av1-1080p8.ivf
ff "${testsrc[@]}" -pix_fmt yuv420p -c:v libx264 -preset ultrafast -profile:v baseline h264-1080p8.h264
ff "${testsrc[@]}" -pix_fmt yuv420p10le -c:v libvpx-vp9 -profile:v 2 -cpu-used 8 vp9-1080p10.ivf

# ---- Harder: noise, motion everywhere, one long group of pictures ----
# The source is a rotating zoom into the Mandelbrot set under a moving test picture,
# with temporal noise: no part stands still, and an encoder can copy little from the
# previous picture. Two of the encoders get a constant quality, because their rate
# control depends on the timing of their threads.

hard_graph="mandelbrot=size=2304x1296:rate=30:maxiter=400:end_pts=200,trim=end_frame=150,format=yuv420p,\
rotate=a=0.35*sin(0.8*t)+0.05*t:ow=iw:oh=ih,crop=1920:1080[back];\
testsrc2=size=640x360:rate=30:duration=5,format=yuv420p[box];\
[back][box]overlay=x=640+600*sin(2.1*t):y=360+340*cos(1.7*t),noise=all_seed=20211:alls=7:allf=t"
hard=(-f lavfi -i "$hard_graph")

ff "${hard[@]}" -pix_fmt yuv420p -c:v libx264 -preset slow -profile:v high -bf 3 -b_strategy 1 -refs 4 -g 250 -crf 32 \
    hard-h264-1080p8.h264
two_pass "${hard[@]}" -pix_fmt yuv420p -c:v libvpx-vp9 -deadline good -cpu-used 4 -auto-alt-ref 1 -lag-in-frames 25 -g 250 \
    -tile-columns 2 -row-mt 1 -threads 2 -b:v 2300k hard-vp9-1080p8.ivf
ff "${hard[@]}" -pix_fmt yuv420p -c:v libsvtav1 -preset 8 -g 250 -crf 46 hard-av1-1080p8.ivf
ff "${hard[@]}" -pix_fmt yuv420p10le -c:v libx265 -preset medium -profile:v main10 \
    -x265-params 'log-level=error:keyint=250:bframes=4:no-info=1' \
    -b:v 2300k -maxrate 4600k -bufsize 4600k hard-hevc-1080p10.hevc

# ---- Conformance: small clips, each for one property ----

small=(-f lavfi -i 'testsrc2=size=320x180:rate=30,trim=end_frame=30')
odd=(-f lavfi -i 'testsrc2=size=128x72:rate=30,trim=end_frame=12,format=yuv444p,crop=99:57:7:5:exact=1,format=yuv420p')

ff "${small[@]}" -pix_fmt yuv420p -c:v libx264 -profile:v baseline -g 12 h264-180p8-baseline.h264
ff "${small[@]}" -pix_fmt yuv420p -c:v libx264 -profile:v high -bf 3 -refs 3 -g 30 h264-180p8-high.h264
ff -f lavfi -i 'testsrc2=size=98x58:rate=30,trim=end_frame=12' \
    -pix_fmt yuv420p -c:v libx264 -profile:v high -bf 2 h264-98x58p8-cropped.h264
ff "${small[@]}" -pix_fmt yuv420p -c:v libx264 -profile:v high -bf 3 -g 15 h264-180p8-container.mp4

x265=log-level=error:keyint=30:bframes=3:no-info=1
ff "${small[@]}" -pix_fmt yuv420p -c:v libx265 -profile:v main -x265-params $x265 hevc-180p8.hevc
ff "${small[@]}" -pix_fmt yuv420p10le -c:v libx265 -profile:v main10 -x265-params $x265 hevc-180p10.hevc
ff "${small[@]}" -pix_fmt yuv420p -c:v libx265 -profile:v main -x265-params $x265 hevc-180p8-container.mkv

two_pass "${small[@]}" -pix_fmt yuv420p -c:v libvpx -b:v 200k -auto-alt-ref 1 -lag-in-frames 16 vp8-180p8-container.webm
ff "${odd[@]}" -pix_fmt yuv420p -c:v libvpx -b:v 200k vp8-99x57p8-odd.ivf

two_pass "${small[@]}" -pix_fmt yuv420p -c:v libvpx-vp9 -b:v 200k -auto-alt-ref 1 -lag-in-frames 16 vp9-180p8.ivf
ff "${small[@]}" -pix_fmt yuv420p10le -c:v libvpx-vp9 -profile:v 2 -b:v 200k vp9-180p10.ivf
ff "${odd[@]}" -pix_fmt yuv420p -c:v libvpx-vp9 -b:v 200k vp9-99x57p8-odd.ivf

ff "${small[@]}" -pix_fmt yuv420p -c:v libsvtav1 -preset 8 -g 30 av1-180p8.ivf
ff "${small[@]}" -pix_fmt yuv420p10le -c:v libsvtav1 -preset 8 -g 30 av1-180p10.ivf
ff "${small[@]}" -pix_fmt yuv420p -c:v libsvtav1 -preset 8 -g 30 -svtav1-params film-grain=20 av1-180p8-grain.ivf
ff "${small[@]}" -pix_fmt gray -c:v libaom-av1 -cpu-used 8 -b:v 200k av1-180p8-grey.ivf
ff "${odd[@]}" -pix_fmt yuv420p -c:v libaom-av1 -cpu-used 8 -b:v 200k av1-99x57p8-odd.ivf
ff "${small[@]}" -pix_fmt yuv420p -c:v libsvtav1 -preset 8 -g 30 av1-180p8-container.mp4

# ---- A size that changes in mid-stream: 12 frames of each size ----

# resized FILE ENCODER-OPTION...: encodes two streams and joins them without encoding again.
resized() {
    local kind=${1#*.} size
    wants "$1" || return 0
    for size in 320x180 192x108; do
        encode -f lavfi -i "testsrc2=size=$size:rate=30,trim=end_frame=12" -pix_fmt yuv420p "${@:2}" \
            "$parts/$size.$kind"
    done
    if [[ $kind == ivf ]]; then
        printf "file '%s'\n" "$parts/320x180.ivf" "$parts/192x108.ivf" >"$parts/list"
        encode -f concat -safe 0 -i "$parts/list" -c copy "$1"
    else
        cat "$parts/320x180.$kind" "$parts/192x108.$kind" >"$1"
    fi
}

resized h264-resize-180p8.h264 -c:v libx264 -profile:v high -bf 2
resized vp9-resize-180p8.ivf -c:v libvpx-vp9 -b:v 200k
resized av1-resize-180p8.ivf -c:v libsvtav1 -preset 8
