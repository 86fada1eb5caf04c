import { expect } from "bun:test";
import { runInNetns } from "../../testing/netns.ts";
import { sandboxTest } from "../../testing/sandbox.ts";
import loopback from "./plugin.ts";

const loFlags = (text: string): string[] => JSON.parse(text)[0].flags;

sandboxTest("loopback ADD brings lo up, CHECK accepts it, DEL takes it down, twice", [], ({ call, container }) => {
  expect(call(loopback, "ADD", {}, { ifname: "whatever" })).toEqual({
    interfaces: [{ name: "lo", mac: "00:00:00:00:00:00", sandbox: container.path }],
    // deno-lint-ignore no-explicit-any -- branded addresses, written as they print
    ips: [{ address: "127.0.0.1/8", interface: 0 }, { address: "::1/128", interface: 0 }] as any,
  });
  expect(loFlags(runInNetns(container, "ip", "-j", "link", "show", "lo"))).toContain("UP");
  call(loopback, "CHECK", {});
  call(loopback, "DEL", {});
  call(loopback, "DEL", {});
  expect(loFlags(runInNetns(container, "ip", "-j", "link", "show", "lo"))).not.toContain("UP");
  expect(() => call(loopback, "CHECK", {})).toThrow('administrative state of "lo" is "down", expected "up"');
});

sandboxTest(
  "loopback says what a plugin before it said, ignores CNI_ARGS, and needs no namespace for DEL",
  [],
  ({ call }) => {
    const prevResult = { cniVersion: "1.1.0", interfaces: [{ name: "eth0" }] };
    expect(call(loopback, "ADD", { prevResult }, { env: { CNI_ARGS: "none" } })).toEqual({
      interfaces: [{ name: "eth0" }],
    });
    call(loopback, "DEL", {}, { netns: null });
    call(loopback, "DEL", {}, { netns: "/run/netns/gone-long-ago" });
  },
);

sandboxTest("loopback refuses the host's own namespace before it touches it", [], ({ call, host }) => {
  expect(() => call(loopback, "ADD", {}, { netns: host })).toThrow("should not be the same");
  expect(loFlags(runInNetns(host, "ip", "-j", "link", "show", "lo"))).not.toContain("UP");
  call(loopback, "ADD", {}, { netns: host, env: { CNI_NETNS_OVERRIDE: "TRUE" } });
  expect(loFlags(runInNetns(host, "ip", "-j", "link", "show", "lo"))).toContain("UP");
});

sandboxTest("loopback DEL takes the host's own namespace for the container's being gone", [], ({ call, host, log }) => {
  runInNetns(host, "ip", "link", "set", "lo", "up");
  call(loopback, "DEL", {}, { netns: host });
  expect(log).toEqual([`loopback: "${host.path}" leads to the host's own namespace; continuing as if it were gone`]);
  expect(loFlags(runInNetns(host, "ip", "-j", "link", "show", "lo"))).toContain("UP");
});
