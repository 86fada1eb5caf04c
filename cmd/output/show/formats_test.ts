/** Graphviz reads the graph, libxml2 the picture; nothing overlaps, and no name of another program gets out of its place. */
import { expect, test } from "bun:test";
import type { Cidr, Ip } from "../../../ffi/address.ts";
import { testWith } from "../../../testing/binary.ts";
import type { NodeTree, Port, ShownLink } from "../../../runtime/show/node_tree.ts";
import type { Screen } from "../screen.ts";
import { formatDot } from "./dot.ts";
import { briefTree, type OutlineNode, outlineOf } from "./outline.ts";
import { formatSvg } from "./svg.ts";
import { formatTextTree } from "./text.ts";

const HOSTILE = `"><b>&amp;</b>'\\l\\" ]; x -- y \u001b[31m\u009b2J\u202e\u0000 容器 <!-- ]]> ${"w".repeat(80)}`;

const link = (name: string, ...addresses: string[]): ShownLink => ({
  ...{ name, kind: "veth", state: "up", mtu: 1500, mac: "0a:58:0a:58:00:01" },
  addresses: addresses as Cidr[],
  packets: { received: 123_456, sent: 98_765 },
});

const port = (i: number, containerId: string): Port => ({
  link: link(`veth${i.toString(16).padStart(8, "0")}`),
  attachment: {
    ...{ network: "pods", containerId, ifname: "eth0", netns: `/run/netns/cni-${containerId}` },
    state: i % 7 === 6 ? "incomplete" : "attached",
    ...i % 7 === 6 && { reason: 'interface "eth0" is missing' },
    interfaces: [{
      ...link("eth0", `10.85.0.${i + 2}/16`, `fd85:1:2:3:4:5:6:${i + 2}/64`),
      routes: [{ dst: "0.0.0.0/0" as Cidr, gateway: "10.85.0.1" as Ip }, { dst: "10.85.0.0/16" as Cidr }],
    }],
    publishedPorts: Array.from({ length: i % 4 }, (_, j) => ({
      ...{ protocol: "tcp", hostPort: 8000 + 10 * i + j, containerPort: 80 },
      containerAddresses: j === 2 ? [] : [`10.85.0.${i + 2}`, `fd85:1:2:3:4:5:6:${i + 2}`],
    })),
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
const PODS = outlineOf(treeOf(50, containerName), false);
const BRIEF_PODS = outlineOf(briefTree(treeOf(50, containerName)), false);
const HOSTILE_PODS = outlineOf(treeOf(3, () => HOSTILE), true);
const TREES: readonly (readonly [string, OutlineNode])[] = [
  ["50 containers", PODS],
  ["50 containers, brief", BRIEF_PODS],
  ["hostile names", HOSTILE_PODS],
  ["nothing", outlineOf({ uplinks: [], devices: [], separate: [], tables: [] }, false)],
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

const boxesIn = (outline: OutlineNode): OutlineNode[] =>
  outline.role === "line" ? [] : [outline, ...outline.children.flatMap(boxesIn)];

/** Labels as Graphviz draws them, one text for each node, and the number of edges. */
function drawnByGraphviz(dot: string): { readonly labels: string[]; readonly edges: number } {
  const { stdout, stderr } = Bun.spawnSync(["dot", "-Tjson"], { stdin: Buffer.from(dot) });
  expect(stderr.toString()).toBe("");
  const { objects, edges = [] } = JSON.parse(stdout.toString());
  const labels = objects.map(({ _ldraw_ }: { _ldraw_: { op: string; text?: string }[] }) =>
    _ldraw_.flatMap(({ op, text }) => op === "T" ? [text] : []).join("\n")
  );
  return { labels, edges: edges.length };
}

for (const [name, outline] of TREES) {
  testWith(["dot"], `Graphviz draws the graph of ${name}`, () => {
    const dot = formatDot(outline);
    const { labels, edges } = drawnByGraphviz(dot);
    const boxes = boxesIn(outline);
    expect([labels.length, edges]).toEqual([boxes.length, boxes.length - 1]);
    const joined = (text: string) => text.replace(/[\s,]/g, "");
    boxes.forEach(({ kind, name, details }, i) => {
      expect(joined(labels[i]!)).toStartWith(joined(`${kind} ${name}${details.join()}`));
    });
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

/** A line of 12 units: three below its baseline. */
function textBoxOf(tag: string): Box {
  const [left, baseline] = [numberOf(tag, "x"), numberOf(tag, "y")];
  return { left, top: baseline - 11, right: left + numberOf(tag, "textLength"), bottom: baseline + 3 };
}

const overlaps = (a: Box, b: Box): boolean =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const contains = (outer: Box, inner: Box): boolean =>
  outer.left <= inner.left && inner.right <= outer.right && outer.top <= inner.top && inner.bottom <= outer.bottom;

test.each(TREES)("in the picture of %s nothing overlaps", (_, outline) => {
  const svg = formatSvg(outline);
  const [page, ...boxes] = [...svg.matchAll(/<rect [^>]*>/g)].map(([tag]) => boxOf(tag));
  const texts = [...svg.matchAll(/<text [^>]*>/g)].map(([tag]) => textBoxOf(tag));
  expect(texts.length).toBeGreaterThanOrEqual(boxes.length);
  texts.forEach((text, i) => {
    expect(texts.slice(i + 1).filter((other) => overlaps(text, other))).toEqual([]);
    // A text is in its box, and in no other but those around that.
    expect(boxes.filter((box) => overlaps(text, box) && !contains(box, text))).toEqual([]);
    expect(boxes.some((box) => contains(box, text))).toBe(true);
  });
  boxes.forEach((box, i) => {
    expect(contains(page!, box)).toBe(true);
    const others = boxes.slice(i + 1).filter((other) => overlaps(box, other));
    expect(others.filter((other) => !contains(box, other))).toEqual([]);
  });
});

test("a picture of 50 containers is about as wide as high", () => {
  const { right, bottom } = boxOf(/<svg [^>]*>/.exec(formatSvg(BRIEF_PODS))![0]);
  expect(right / bottom).toBeWithin(0.5, 2);
});

for (const [name, outline] of TREES) {
  testWith(["xmllint"], `libxml2 reads the picture of ${name}, with all names`, () => {
    const svg = formatSvg(outline);
    const command = ["xmllint", "--nonet", "--xpath", "//*[local-name()='text']/text()", "-"];
    const { stdout, stderr, exitCode } = Bun.spawnSync(command, { stdin: Buffer.from(svg) });
    expect([exitCode, stderr.toString()]).toEqual([0, ""]);
    const text = stdout.toString().replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
    const joined = text.replace(/[\s,]/g, "");
    for (const { name } of boxesIn(outline)) {
      expect(joined).toContain(name.replace(/[\s,]/g, ""));
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
