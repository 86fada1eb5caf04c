/**
 * Published ports and masquerading by the reference plugins and by the compiled binary: who is answered, and whom the answerer sees.
 *
 * @module
 */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { connectOutside } from "../../testing/outside.ts";
import { requestTcp, requestUdp, serveTcp, serveUdp } from "../../testing/traffic.ts";
import {
  comparisonTest,
  newComparisonHost,
  ourPlugins,
  type PluginSet,
  referencePlugins,
} from "../../testing/reference_host.ts";
import { dualStackIpam } from "../../testing/reference_requests.ts";

const config = { isDefaultGateway: true, ipMasq: true, hairpinMode: true, ipam: dualStackIpam };
const portMappings = [
  { hostPort: 8080, containerPort: 80, protocol: "tcp" },
  { hostPort: 5353, containerPort: 53, protocol: "udp" },
];

async function answersOf(side: PluginSet): Promise<Record<string, string | undefined>> {
  using world = newComparisonHost();
  const { host, container, call } = world;
  const outside = world.newContainer();
  // Without duplicate address detection: the gateway of the reference does not speak IPv6 in its first seconds else.
  connectOutside(host, outside);
  const prevResult = call(side, "ADD", config);
  const published = { runtimeConfig: { portMappings }, prevResult };
  expect(call(side, "ADD", published, { type: "portmap" }).ips).toEqual(prevResult.ips);
  using _tcp = serveTcp(container, "container", 80);
  using _udp = await serveUdp(container, "container", 53);
  using _web = serveTcp(outside, "outside", 80);
  const answers: Record<string, string | undefined> = {};
  const places: [name: string, from: Netns, to: string[], port: number][] = [
    ["outside", outside, ["192.0.2.1", "2001:db8::1"], 8080],
    ["host", host, ["127.0.0.1", "192.0.2.1", "10.1.0.1", "2001:db8::1", "fd00:1::1"], 8080],
    ["container", container, ["192.0.2.1", "10.1.0.1", "2001:db8::1", "fd00:1::1"], 8080],
    ["container", container, ["192.0.2.2", "2001:db8::2"], 80],
  ];
  for (const [name, from, all, port] of places) {
    for (const to of all) {
      answers[`${name} to ${to}, TCP ${port}`] = await requestTcp(from, to, port);
      if (port === 8080) answers[`${name} to ${to}, UDP`] = await requestUdp(from, to, 5353);
    }
  }
  call(side, "DEL", published, { type: "portmap" });
  answers["after DEL"] = await requestTcp(outside, "192.0.2.1", 8080);
  call(side, "DEL", config);
  return answers;
}

comparisonTest(
  "published ports and masquerading: everybody gets the same answer, seen from the same address",
  async () => {
    const reference = await answersOf(referencePlugins);
    const unanswered = Object.entries(reference).filter(([, answer]) => !answer).map(([question]) => question);
    expect(unanswered).toEqual(["after DEL"]);
    expect(await answersOf(ourPlugins)).toEqual(reference);
  },
);
