/** On a kernel that has dummy links: not that of every machine. */
import { expect } from "bun:test";
import { deviceTest } from "../../testing/host_device.ts";
import { linkNames, runIp } from "../../testing/netns.ts";

deviceTest("a dummy comes back, also where the container has made an equivalent one in its place", (bench) => {
  const { callPlugin, host, container, log } = bench;
  const config = { device: "d0" };
  runIp(host, "link add d0 type dummy");
  for (const replace of [false, true]) {
    callPlugin("ADD", config);
    if (replace) runIp(container, "link del net1", "link add net1 type dummy", "link set net1 alias d0");
    callPlugin("DEL", config);
    expect([linkNames(host), linkNames(container)]).toEqual([["d0", "lo", "nic0"], ["lo"]]);
  }
  expect(log).toEqual([]);
});
