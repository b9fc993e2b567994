/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Substitute for libavcodec. VERSION is what avcodec_send_packet returns. */

int avcodec_send_packet(void *context, const void *packet);

int avcodec_send_packet(void *context, const void *packet)
{
	(void)context;
	(void)packet;
	return VERSION;
}
