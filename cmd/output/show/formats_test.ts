/** Graphviz reads the graph, libxml2 the picture; nothing overlaps, and no name of another program gets out of its place. */
import { expect, test } from "bun:test";
import type { Cidr, Ip } from "../../../ffi/address.ts";
import { testWith } from "../../../testing/binary.ts";
import type { NodeTree, Port, ShownLink } from "../../../inspect/show/node_tree.ts";
import type { Screen } from "../screen.ts";
import { formatDot } from "./dot.ts";
import { layoutOf } from "./layout.ts";
import { outlineOf } from "./outline.ts";
import { formatSvg } from "./svg.ts";
import { formatTextTree } from "./text.ts";
import { type Topology, type TopologyBox, topologyOf } from "./topology.ts";

const HOSTILE = `"><b>&amp;</b>'\\l\\" ]; x -- y \u001b[31m\u009b2J\u202e\u0000 容器 <!-- ]]> ${"w".repeat(80)}`;

const link = (name: string, ...addresses: string[]): ShownLink => ({
  ...{ name, kind: "veth", state: "up", mtu: 1500, mac: "0a:58:0a:58:00:01" },
  addresses: addresses as Cidr[],
  packets: { received: 123_456, sent: 98_765 },
});

const ipv4 = (i: number): string => `10.85.${(i + 2) >> 8}.${(i + 2) & 255}`;

const port = (i: number, containerId: string): Port => ({
  link: link(`veth${i.toString(16).padStart(8, "0")}`),
  attachment: {
    ...{ network: "pods", containerId, ifname: "eth0", netns: `/run/netns/cni-${containerId}` },
    state: i % 7 === 6 ? "incomplete" : "attached",
    ...i % 7 === 6 && { reason: 'interface "eth0" is missing' },
    interfaces: [{
      ...link("eth0", `${ipv4(i)}/16`, `fd85:1:2:3:4:5:6:${i + 2}/64`),
      routes: [{ dst: "0.0.0.0/0" as Cidr, gateway: "10.85.0.1" as Ip }, { dst: "10.85.0.0/16" as Cidr }],
    }],
    publishedPorts: Array.from({ length: i % 4 }, (_, j) => ({
      ...{ protocol: "tcp", hostPort: 8000 + 10 * i + j, containerPort: 80 },
      containerAddresses: j === 2 ? [] : [ipv4(i), `fd85:1:2:3:4:5:6:${i + 2}`],
    })),
    ...i % 3 === 2 && { policy: { ingress: i % 2 === 0 ? "isolated" : "closed", egress: "open" } as const },
    elements: ["masquerade4", "masquerade6", "forward4"].map((set) => ({ table: "inet cni", set, element: "" })),
  },
});

const treeOf = (count: number, name: (i: number) => string): NodeTree => ({
  uplinks: [{ ...link("eth0", "198.51.100.7/24"), gateways: ["198.51.100.1" as Ip] }],
  devices: [
    {
      ...link(name(0), "10.85.0.1/16"),
      kind: "bridge",
      networks: ["pods"],
      ports: [
        ...Array.from({ length: count }, (_, i) => port(i, name(i))),
        { link: link("other0") },
      ],
    },
    { ...link("eth1"), networks: ["lan"], ports: [{ attachment: port(200, "lan-container").attachment! }] },
  ],
  separate: [{ link: link("veth99"), attachment: port(99, "routed").attachment! }],
  nodes: [{
    name: "node-2",
    routes: [
      { dst: "10.244.2.0/24" as Cidr, gateway: "198.51.100.8" as Ip, link: "eth0", isTunnelled: false },
      { dst: "fd44:2::/64" as Cidr, gateway: "203.0.113.8" as Ip, link: "cni-vxlan", isTunnelled: true },
    ],
  }],
  tables: [{
    ...{ family: "ip", name: "filter", sets: [] },
    chains: [{
      ...{ name: "CNI-FORWARD", comment: name(1) },
      rules: [
        { text: `iifname ${JSON.stringify(name(2))} accept`, packets: 12, bytes: 3456 },
        { text: "accept" },
      ],
    }],
  }],
});
const containerName = (i: number) => `container-${i}`;
const NOTHING: NodeTree = { uplinks: [], devices: [], separate: [], nodes: [], tables: [] };
/** Containers on several networks, of which one is down, one whose link is gone, and one that nothing is known of. */
function mixedTree(): NodeTree {
  const tree = treeOf(5, containerName);
  const [pods, lan] = [tree.devices[0]!, tree.devices[1]!];
  const also = (i: number, network: string): Port => {
    const { attachment } = port(i, containerName(i));
    return { link: link(`vethalso${i}`), attachment: { ...attachment!, network, ifname: "net1", publishedPorts: [] } };
  };
  const gone = { ...port(6, "gone").attachment!, state: "gone" as const, interfaces: [] };
  return {
    ...tree,
    devices: [
      pods,
      { ...lan, ports: [...lan.ports, also(1, "lan"), also(3, "lan")] },
      { ...link("br1", "10.86.0.1/24"), kind: "bridge", state: "down", networks: ["b"], ports: [also(1, "b")] },
    ],
    separate: [...tree.separate, { attachment: gone }, {
      attachment: { ...gone, network: "unknown", containerId: "x" },
    }],
  };
}

const NODES: readonly (readonly [string, NodeTree, withRules: boolean])[] = [
  ["50 containers", treeOf(50, containerName), false],
  ["hostile names", treeOf(3, () => HOSTILE), true],
  ["containers on several networks", mixedTree(), false],
  ["containers without an uplink", { ...mixedTree(), uplinks: [] }, false],
  ["nothing", NOTHING, false],
];
const TREES = NODES.map(([name, tree, withRules]) => [name, outlineOf(tree, withRules)] as const);
const TOPOLOGIES = NODES.map(([name, tree, withRules]) => [name, topologyOf(tree, withRules)] as const);
const boxesIn = ({ uplinks, devices, containers, tables }: Topology): TopologyBox[] => [
  ...uplinks,
  ...devices,
  ...containers,
  ...tables,
];

const screen = (columns: number | undefined): Screen => ({ isTerminal: true, columns, style: (_, text) => text });
const HAS_CONTROLS = /[\p{Cc}\p{Cf}]/u;

test.each(TREES)("the text tree of %s fits every terminal and loses nothing", (_, outline) => {
  const whole = formatTextTree(outline, screen(undefined));
  const words = (text: string) => text.replace(/[│├└─,\s]/g, "");
  for (const columns of [60, 80, 200]) {
    const lines = formatTextTree(outline, screen(columns)).trimEnd().split("\n");
    expect(lines.filter((line) => Bun.stringWidth(line) > columns)).toEqual([]);
    expect(words(lines.join("\n"))).toBe(words(whole));
    expect(lines.filter((line) => HAS_CONTROLS.test(line))).toEqual([]);
  }
});

test("the text tree shows each thing below what it belongs to", () => {
  const lines = formatTextTree(outlineOf(treeOf(2, containerName), false), screen(undefined)).split("\n");
  expect(lines.slice(4, 17)).toEqual([
    "├─ bridge container-0  network pods, up, mtu 1500, packets 123456 in 98765 out",
    "│  ├─ address 10.85.0.1/16",
    "│  ├─ port veth00000000  up, mtu 1500, packets 123456 in 98765 out",
    "│  │  └─ container container-0  network pods, /run/netns/cni-container-0",
    "│  │     ├─ interface eth0  veth, up, mtu 1500, packets 123456 in 98765 out",
    "│  │     │  ├─ address 10.85.0.2/16",
    "│  │     │  ├─ address fd85:1:2:3:4:5:6:2/64",
    "│  │     │  └─ route default  via 10.85.0.1",
    "│  │     └─ elements in table inet cni  masquerade, forward",
    "│  ├─ port veth00000001  up, mtu 1500, packets 123456 in 98765 out",
    "│  │  └─ container container-1  network pods, /run/netns/cni-container-1",
    "│  │     ├─ interface eth0  veth, up, mtu 1500, packets 123456 in 98765 out",
    "│  │     │  ├─ address 10.85.0.3/16",
  ]);
  expect(lines.join("\n")).toContain("published 8010/tcp  → 10.85.0.3:80, → [fd85:1:2:3:4:5:6:3]:80");
  expect(lines.slice(-4)).toEqual([
    "└─ table ip filter  1 chain, 2 rules",
    "   └─ chain CNI-FORWARD",
    '      └─ rule iifname "container-2" accept  12 packets, 3456 bytes',
    "",
  ]);
});

test("one box is one container, with a wire for each network, and arrows for its ports", () => {
  const { devices, containers } = topologyOf(mixedTree(), false);
  const wires = containers.map(({ rows: [title, ...rows], isBroken }) => [
    title!.texts[0],
    ...rows.flatMap(({ wire }) => {
      if (!wire) return [];
      return `${wire.from === "outside" ? wire.label : devices[wire.from]!.rows[0]!.texts[0]}${
        wire.isBroken ? " !" : ""
      }`;
    }),
    ...isBroken ? ["broken"] : [],
  ]);
  expect(devices.map(({ isBroken }) => isBroken)).toEqual([false, false, true, false]);
  expect(wires).toEqual([
    ["container-0", "bridge container-0"],
    ["container-1", "bridge container-0", "8010/tcp", "veth eth1", "bridge br1"],
    ["container-2", "bridge container-0", "8020/tcp", "8021/tcp"],
    ["container-3", "bridge container-0", "8030/tcp", "8031/tcp", "8032/tcp !", "veth eth1"],
    ["container-4", "bridge container-0"],
    ["lan-container", "veth eth1"],
    ["routed", "routes of the host", "8990/tcp", "8991/tcp", "8992/tcp !"],
    ["gone", "bridge container-0 !", "8060/tcp", "8061/tcp", "broken"],
    ["x", "8060/tcp", "8061/tcp", "broken"],
  ]);
});

/** What Graphviz draws: a text for each node and each edge. */
function drawnByGraphviz(dot: string): { readonly labels: string[]; readonly edges: string[] } {
  const { stdout, stderr } = Bun.spawnSync(["dot", "-Tjson"], { stdin: Buffer.from(dot) });
  expect(stderr.toString()).toBe("");
  const { objects = [], edges = [] } = JSON.parse(stdout.toString());
  const texts = (drawn: readonly { op: string; text?: string }[] = []) =>
    drawn.flatMap(({ op, text }) => op === "T" ? [text] : []).join("\n");
  return {
    labels: objects.map(({ _ldraw_ }: { _ldraw_: [] }) => texts(_ldraw_)),
    edges: edges.map(({ _ldraw_ }: { _ldraw_: [] }) => texts(_ldraw_)),
  };
}

const joined = (text: string): string => text.replace(/[\s,]/g, "");

for (const [name, topology] of TOPOLOGIES) {
  testWith(["dot"], `Graphviz draws the graph of ${name}`, () => {
    const dot = formatDot(topology);
    const { labels, edges } = drawnByGraphviz(dot);
    const boxes = boxesIn(topology);
    boxes.forEach(({ rows }, i) => {
      expect(joined(labels[i]!)).toBe(joined(rows.flatMap(({ texts }) => texts).join()));
    });
    const wires = boxes.flatMap(({ rows }) => rows.flatMap(({ wire }) => wire ?? []));
    const routed = topology.uplinks.length * topology.devices.filter(({ isRouted }) => isRouted).length;
    expect(edges).toHaveLength(wires.length + routed);
    expect(HAS_CONTROLS.test(dot.replaceAll("\n", ""))).toBe(false);
  });
}

interface Box {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

const numberOf = (tag: string, name: string): number => Number(new RegExp(` ${name}="([^"]*)"`).exec(tag)?.[1] ?? "0");

function boxOf(tag: string): Box {
  const [left, top] = [numberOf(tag, "x"), numberOf(tag, "y")];
  return { left, top, right: left + numberOf(tag, "width"), bottom: top + numberOf(tag, "height") };
}

/** A fifth of a line is below its baseline. */
function textBoxOf(tag: string): Box {
  const [left, baseline, size] = [numberOf(tag, "x"), numberOf(tag, "y"), numberOf(tag, "font-size") || 12];
  const [top, bottom] = [baseline - size * 0.8, baseline + size * 0.2];
  return { left, top, right: left + numberOf(tag, "textLength"), bottom };
}

const overlaps = (a: Box, b: Box): boolean =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const contains = (outer: Box, inner: Box): boolean =>
  outer.left <= inner.left && inner.right <= outer.right && outer.top <= inner.top && inner.bottom <= outer.bottom;

/** The straight parts of a wire, thinner than a unit. */
function partsOf(points: readonly (readonly [number, number])[]): Box[] {
  return points.slice(1).map(([x, y], i) => {
    const [x0, y0] = points[i]!;
    const [left, right] = [Math.min(x, x0), Math.max(x, x0)];
    const [top, bottom] = [Math.min(y, y0), Math.max(y, y0)];
    return {
      left: left + 0.1,
      right: right - 0.1 + (left === right ? 0.2 : 0),
      top,
      bottom: Math.max(bottom, top + 0.1),
    };
  });
}

test.each(TOPOLOGIES)("in the picture of %s nothing overlaps", (_, topology) => {
  const svg = formatSvg(topology);
  const [page, frame, ...boxes] = [...svg.matchAll(/<rect [^>]*>/g)].map(([tag]) => boxOf(tag));
  const texts = [...svg.matchAll(/<text [^>]*>/g)].map(([tag]) => textBoxOf(tag));
  expect(boxes).toHaveLength(boxesIn(topology).length);
  texts.forEach((text, i) => {
    expect(contains(page!, text)).toBe(true);
    expect(texts.slice(i + 1).filter((other) => overlaps(text, other))).toEqual([]);
    // A text is in its box, or in none.
    expect(boxes.filter((box) => overlaps(text, box) && !contains(box, text))).toEqual([]);
  });
  boxes.forEach((box, i) => {
    expect(contains(page!, box)).toBe(true);
    expect(overlaps(frame!, box)).toBe(contains(frame!, box));
    expect(boxes.slice(i + 1).filter((other) => overlaps(box, other))).toEqual([]);
  });
  const wires = layoutOf(topology).wires.flatMap(({ points }) => partsOf(points));
  for (const wire of wires) {
    expect(boxes.filter((box) => overlaps(wire, box))).toEqual([]);
    expect(texts.filter((text) => overlaps(wire, text))).toEqual([]);
  }
});

test.each([1, 7, 50, 400])("a picture of %i containers is about as wide as high", (count) => {
  const svg = formatSvg(topologyOf(treeOf(count, containerName), false));
  const { right, bottom } = boxOf(/<svg [^>]*>/.exec(svg)![0]);
  expect(right / bottom).toBeWithin(0.5, 2);
});

for (const [name, topology] of TOPOLOGIES) {
  testWith(["xmllint"], `libxml2 reads the picture of ${name}, with all texts`, () => {
    const svg = formatSvg(topology);
    const command = ["xmllint", "--nonet", "--xpath", "//*[local-name()='text']/text()", "-"];
    const { stdout, stderr, exitCode } = Bun.spawnSync(command, { stdin: Buffer.from(svg) });
    expect([exitCode, stderr.toString()]).toEqual([0, ""]);
    const text = stdout.toString().replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
    for (const { rows } of boxesIn(topology)) {
      for (const { texts, wire } of rows) {
        expect(joined(text)).toContain(joined(texts.join()));
        expect(joined(text)).toContain(joined(wire?.label ?? ""));
      }
    }
    expect(HAS_CONTROLS.test(text.replaceAll("\n", ""))).toBe(false);
  });
}

test("an uplink that containers share is shown once, with its addresses, routes and containers", () => {
  const tree = treeOf(1, containerName);
  const [uplink] = tree.uplinks;
  const { children } = outlineOf({ ...tree, devices: [{ ...tree.devices[1]!, ...uplink! }] }, false);
  expect(children.map(({ role, kind, name }) => [role, kind, name]).slice(0, 2)).toEqual([
    ["device", "uplink", "eth0"],
    ["port", "port", "veth99"],
  ]);
  expect(children[0]!.details).toEqual(["veth", "network lan", "up", "mtu 1500", "packets 123456 in 98765 out"]);
  expect(children[0]!.children.map(({ kind, name }) => `${kind} ${name}`)).toEqual([
    "address 198.51.100.7/24",
    "route default",
    "container lan-container",
  ]);
});
