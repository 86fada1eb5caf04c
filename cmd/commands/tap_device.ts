/** The plugin `tap` starts it: a tap has the SELinux context of the process that makes it. */
import { createTap, persistTap } from "../../ffi/route/tap.ts";
import { tapDeviceOptions } from "../../plugins/lib/links/tap_device_options.ts";
import type { Command } from "../command.ts";

const command: Command = {
  name: "tap-device",
  summary: "make a tap that outlives this process",
  arguments: [{ name: "JSON", help: "name, owner, group and multiQueue of the tap" }],
  options: [],
  hidden: true,
  run: ({ words: [request = ""] }) => tapDevice(request),
};
export default command;

export function tapDevice(request: string): void {
  const { name, ...options } = tapDeviceOptions.parse(JSON.parse(request), "order");
  using tap = createTap(name, options);
  persistTap(tap);
}
