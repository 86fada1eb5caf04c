/**
 * Every plugin as an engine calls it: the compiled binary, by its link, in a root with nothing else, on a kernel that has what any of
 * them needs. What the kernel shows tells whether it did what it is for, and whether it took that back.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { release } from "node:os";
import { type ConformanceNode, newConformanceNode, workingConfig } from "../testing/conformance.ts";
import { type KernelEffect, loadFixtures, testedPlugins } from "../testing/fixture.ts";
import { ipShow, linkNames, runShellInNetns } from "../testing/netns.ts";
import { FAR_END_UP } from "../testing/fixture_configs.ts";
import { MINIMAL_ROOT_BIN, type MinimalRoot, newMinimalRoot } from "../testing/minimal_root.ts";

const FIXTURES = await loadFixtures();

let thin: MinimalRoot;
beforeAll(() => {
  thin = newMinimalRoot();
  // What engines give besides, for tap.
  Bun.spawnSync(["sh", "-ec", 'mkdir "$1/dev/net"; mknod "$1/dev/net/tun" c 10 200', "sh", thin.root]);
});
afterAll(() => thin[Symbol.dispose]());

/** Has the plugin do something for the container of the node; what it prints, parsed, `undefined` for nothing. */
function caller(node: ConformanceNode, type: string, config: object, ifname: string) {
  return (verb: string, more: object = {}) => {
    const { exitCode, stdout, stderr } = thin.run(node.host, type, [], {
      env: {
        CNI_COMMAND: verb,
        CNI_CONTAINERID: "c1",
        CNI_NETNS: node.container.path,
        CNI_IFNAME: ifname,
        CNI_PATH: MINIMAL_ROOT_BIN,
      },
      stdin: JSON.stringify({ cniVersion: "1.1.0", name: "net", type, ...config, ...more }),
      ...FIXTURES[type]!.sharesDirectory && { mounts: bindMount(node.directory) },
    });
    return { exitCode, stderr, answer: stdout === "" ? undefined : JSON.parse(stdout) };
  };
}

/** Lines of the shell that give the root a directory of the machine. */
const bindMount = (directory: string): string =>
  `mkdir -p "$root${directory}"; mount --bind "${directory}" "$root${directory}"`;

const SILENT = { exitCode: 0, stderr: "", answer: undefined };

/** A plugin whose answer is all there is to see. */
const NO_EFFECT: KernelEffect = { observe: () => undefined, attached: undefined };

for (const type of testedPlugins()) {
  const { effects } = FIXTURES[type]!;
  for (const effect of effects.length > 0 ? effects : [NO_EFFECT]) {
    const title = [type, ...effect.name === undefined ? [] : [effect.name]].join(" ");
    test(`${title}: VERSION, STATUS, ADD, CHECK, DEL and GC of the compiled binary, and what the kernel shows`, () => {
      testLifecycle(type, effect);
    });
  }
}

function testLifecycle(type: string, { config: change, host = [], observe, attached }: KernelEffect): void {
  using node = newConformanceNode();
  const { config, options: { ifname = "eth0" } } = workingConfig(type, node);
  runShellInNetns(node.host, ...host);
  const call = caller(node, type, { ...config, ...change }, ifname);
  const seen = () => observe(node, thin.root);
  const before = seen();

  expect(call("VERSION").answer.supportedVersions).toContain("1.1.0");
  expect(call("STATUS")).toEqual(SILENT);
  const added = call("ADD");
  expect(added).toMatchObject({ exitCode: 0, stderr: "", answer: { cniVersion: "1.1.0" } });
  expect(seen()).toEqual(attached);
  if (attached !== undefined) expect(before).not.toEqual(attached);
  expect(call("CHECK", { prevResult: added.answer })).toEqual(SILENT);

  expect(call("DEL", { prevResult: added.answer })).toEqual(SILENT);
  expect(seen()).toEqual(before);
  if (attached !== undefined) expect(call("CHECK", { prevResult: added.answer }).exitCode).toBe(1);
  // Once more, as an engine does that has not heard of the first.
  expect(call("DEL")).toEqual(SILENT);
  expect(call("GC", { "cni.dev/valid-attachments": [] })).toEqual(SILENT);
}

/** Whether the kernel knows what Linux 5.11 brought. */
const isNew = Bun.semver.order(/^\d+\.\d+\.\d+/.exec(release())![0], "5.11.0") >= 0;

const hasMacvlan = testedPlugins().includes("macvlan");

test.if(hasMacvlan)(
  `bcqueuelen of macvlan is set, or refused by a kernel that has no such thing${
    hasMacvlan ? "" : " # the sample has no macvlan"
  }`,
  () => {
    using node = newConformanceNode();
    const { config } = workingConfig("macvlan", node);
    runShellInNetns(node.host, ...FAR_END_UP);
    const { exitCode, answer } = caller(node, "macvlan", { ...config, bcqueuelen: 321 }, "eth0")("ADD");
    if (isNew) {
      const [eth0] = ipShow(node.container, "link", "show", "eth0");
      expect([exitCode, eth0.linkinfo.info_data.bcqueuelen]).toEqual([0, 321]);
    } else {
      expect([exitCode, answer]).toEqual([1, {
        cniVersion: "1.1.0",
        code: 2,
        msg: 'Cannot set bcqueuelen of "eth0": Linux 5.11 or newer is needed',
      }]);
      expect(linkNames(node.container)).not.toContain("eth0");
    }
  },
);
