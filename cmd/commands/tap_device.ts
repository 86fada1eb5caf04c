/**
 * `cni tap-device '{"name":"tap0"}'`: makes a tap and ends. The plugin `tap` has this program started once more for a tap that is to have an
 * SELinux context of its own: it is that of the process.
 *
 * @module
 */
import { createTap, persistTap } from "../../ffi/route/tap.ts";
import { tapDeviceOptions } from "../../plugins/tap/tap_device_options.ts";

/** @returns the exit status @throws {SystemError} what the kernel refused */
export function tapDevice([request = ""]: readonly string[]): number {
  const { name, ...options } = tapDeviceOptions.parse(JSON.parse(request), "order");
  using tap = createTap(name, options);
  persistTap(tap);
  return 0;
}
