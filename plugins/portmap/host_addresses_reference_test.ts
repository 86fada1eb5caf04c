/**
 * Who is answered at which address of the host, by the reference plugin and by the compiled binary: from each address, to each address, at a
 * port published on each address.
 *
 * @module
 */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import type { AskedCall } from "../../testing/ask_all.ts";
import { runIp } from "../../testing/netns.ts";
import { connectOutside } from "../../testing/outside.ts";
import { sampleOf } from "../../testing/sample.ts";
import { serveTcp, serveUdp } from "../../testing/traffic.ts";
import {
  comparisonTest,
  newComparisonHost,
  ourPlugins,
  type PluginSet,
  referencePlugins,
} from "../../testing/reference_host.ts";
import { dualStackIpam } from "../../testing/reference_requests.ts";

const BRIDGED = { isDefaultGateway: true, ipMasq: true, hairpinMode: true, ipam: dualStackIpam };
const LOOPBACK = { 4: ["127.0.0.1", "127.0.0.2"], 6: ["::1"] } as const;
const ADDRESSES = {
  4: [...LOOPBACK[4], "192.0.2.1", "192.0.2.21", "10.1.0.1"],
  6: [...LOOPBACK[6], "2001:db8::1", "2001:db8::21", "fd00:1::1"],
} as const;
const FIRST_PORT = 8080;
/** Each on a host port of its own. */
const HOST_IPS = [undefined, ...ADDRESSES[4], ...ADDRESSES[6]];
const portMappings = HOST_IPS.flatMap((hostIP, at) =>
  (["tcp", "udp"] as const).map((protocol) => ({
    hostPort: FIRST_PORT + at,
    containerPort: 80,
    protocol,
    ...hostIP !== undefined && { hostIP },
  }))
);

/** @param sources `undefined`: the kernel chooses */
function questionsFrom(sources: readonly (string | undefined)[]): AskedCall[] {
  return ([4, 6] as const).flatMap((family) =>
    sources.filter((source) => source === undefined || source.includes(":") === (family === 6)).flatMap((source) =>
      ADDRESSES[family].flatMap((target) =>
        portMappings.map(({ protocol, hostPort }) => ({
          protocol,
          ...source !== undefined && { source },
          target,
          port: hostPort,
        }))
      )
    )
  );
}

type Answers = Readonly<Record<string, string | null>>;

async function ask(place: string, netns: Netns, questions: readonly AskedCall[]): Promise<Answers> {
  const program = new URL("../../testing/ask_all.ts", import.meta.url).pathname;
  const child = netns.run(() => ({
    process: Bun.spawn([process.execPath, program], { stdin: Buffer.from(JSON.stringify(questions)) }),
  }));
  const answers: (string | null)[] = await new Response(child.process.stdout).json();
  return Object.fromEntries(questions.map(({ protocol, source = "any address", target, port }, at) => {
    const hostIP = HOST_IPS[port - FIRST_PORT] ?? "all addresses";
    return [`${place}, ${source} to ${target}, ${protocol} on ${hostIP}`, answers[at]!];
  }));
}

async function answersOf(side: PluginSet, snat: boolean): Promise<{ fromHost: Answers; fromElsewhere: Answers }> {
  using world = newComparisonHost();
  const { host, container, call } = world;
  const outside = world.newContainer();
  connectOutside(host, outside);
  runIp(host, "addr add 192.0.2.21/24 dev up0", "addr add 2001:db8::21/64 dev up0 nodad");
  const neighbour = world.newContainer();
  const prevResult = call(side, "ADD", BRIDGED);
  call(side, "ADD", BRIDGED, { env: { CNI_CONTAINERID: "c2", CNI_NETNS: neighbour.path } });
  for (const netns of [container, neighbour]) runIp(netns, "link set lo up");
  call(side, "ADD", { snat, runtimeConfig: { portMappings }, prevResult }, { type: "portmap" });
  using _tcp = serveTcp(container, "container", 80);
  using _udp = await serveUdp(container, "container", 80);
  const places = [["outside", outside], ["container", container], ["neighbour", neighbour]] as const;
  const elsewhere = places.map(([name, netns]) => ask(name, netns, questionsFrom([undefined])));
  const fromHost = ask("host", host, questionsFrom([undefined, ...ADDRESSES[4], ...ADDRESSES[6]]));
  return { fromHost: await fromHost, fromElsewhere: Object.assign({}, ...await Promise.all(elsewhere)) };
}

const answered = (answers: Answers): Answers =>
  Object.fromEntries(Object.entries(answers).filter(([, answer]) => answer !== null));

for (const snat of sampleOf([true, false])) {
  comparisonTest(
    `where the reference answers at an address of the host, this program does too, with snat ${snat}`,
    async () => {
      const reference = await answersOf(referencePlugins, snat);
      const ours = await answersOf(ourPlugins, snat);
      const expected = answered(reference.fromHost);
      expect(Object.keys(expected).length).toBeGreaterThan(100);
      expect(Object.fromEntries(Object.keys(expected).map((question) => [question, ours.fromHost[question]])))
        .toEqual(expected);
      // Nobody else gets more: a port on a loopback address is the host's own.
      expect(answered(ours.fromElsewhere)).toEqual(answered(reference.fromElsewhere));
      const onLoopback = Object.keys(answered(ours.fromElsewhere)).filter((question) =>
        [...LOOPBACK[4], ...LOOPBACK[6]].some((address) => question.endsWith(` on ${address}`))
      );
      expect(onLoopback).toEqual([]);
    },
  );
}
