/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Plug-in that is linked with one version of the substitute for libavcodec. */

int avcodec_send_packet(void *context, const void *packet);
int plugin_call(void *context, const void *packet);
int plugin_tail(void *context, const void *packet);

/* Not as the last act: the return address is in the plug-in. */
int plugin_call(void *context, const void *packet)
{
	return avcodec_send_packet(context, packet) + 100;
}

/* As the last act: the return address is in the program, which has no such library. */
int plugin_tail(void *context, const void *packet)
{
	return avcodec_send_packet(context, packet);
}
