import { expect, test } from "bun:test";
import { newNetns, runShellInNetns, until } from "../../testing/netns.ts";
import { awaitReadable } from "../sys/poll.ts";
import { type NsidEvents, openNsidEvents } from "./nsid_events.ts";

test("tells whether a namespace is gone, and not that one has come", async () => {
  using host = newNetns();
  using events = host.run<NsidEvents>(openNsidEvents);
  {
    using container = newNetns();
    runShellInNetns(host, `ip link add a0 type veth peer name b0 netns ${container.path}`);
    expect(awaitReadable(events.fd, 5000)).toBe(true);
    expect(events.drain()).toBe(false);
  }
  await until(() => events.drain());
  expect(events.drain()).toBe(false);
});
