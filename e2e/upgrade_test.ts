/**
 * Upgrades and downgrades under containers that live: state files of every version that is recorded, and files of a version that does not
 * exist yet.
 */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { dirname } from "node:path";
import { stateSamples, VERSION } from "../scripts/src/record_state/samples.ts";
import { isJsonObject } from "../spec/schema.ts";
import { testWith } from "../testing/binary.ts";
import {
  addStateAttachments,
  newStateHost,
  STATE_ATTACHMENTS,
  STATE_HOST_PROGRAMS,
  type StateFiles,
  type StateHost,
} from "../testing/state_host.ts";

const TIMEOUT_MS = 120_000;
const LAST_RESERVED = "/var/lib/cni/networks/lan/last_reserved_ip.0";
const samples = stateSamples();

/** The files of a host in the format of a sample: its keys, with the host's values where both have the key. */
function inFormatOf(sample: StateFiles, current: StateFiles): StateFiles {
  const texts = Object.values(sample);
  return Object.fromEntries(
    Object.entries(current).map(([path, text], i) => [
      path,
      isJson(text) ? JSON.stringify(withValuesOf(JSON.parse(text), JSON.parse(texts[i]!))) : text,
    ]),
  );
}

function withValuesOf(current: unknown, old: unknown): unknown {
  if (!isJsonObject(old) || !isJsonObject(current)) return current;
  return Object.fromEntries(
    Object.entries(old).map(([key, value]) => [key, key in current ? withValuesOf(current[key], value) : value]),
  );
}

const isJson = (text: string): boolean => text.startsWith("{");

/** Keys and kinds of values, without the values. */
function shapeOf(node: unknown): unknown {
  if (Array.isArray(node)) return node.slice(0, 1).map(shapeOf);
  if (!isJsonObject(node)) return typeof node;
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, shapeOf(value)]));
}

const shapesOf = (files: StateFiles): object =>
  Object.fromEntries(
    Object.entries(files).map((
      [path, text],
    ) => [withoutBoot(path), isJson(text) ? shapeOf(JSON.parse(text)) : text]),
  );

/** Reservations have the boot in their second name. */
const withoutBoot = (path: string): string => path.replace(/:[0-9a-f]{8}$/, ":BOOT");

const commands = (verb: string): string =>
  STATE_ATTACHMENTS.map(([words]) => `cni run ${verb} ${words} $conf`).join("; ");

describe("state files", () => {
  const resources = new DisposableStack();
  let host: StateHost;
  beforeAll(async () => {
    if (!STATE_HOST_PROGRAMS.every((program) => Bun.which(program))) return;
    host = resources.use(await newStateHost());
  }, TIMEOUT_MS);
  afterAll(() => resources.dispose());
  const stateTest = (name: string, body: () => Promise<void>) => testWith(STATE_HOST_PROGRAMS, name, body, TIMEOUT_MS);
  const deleteAll = (): void => {
    host.run(commands("del"));
    expect(Object.keys(host.readState())).toEqual([LAST_RESERVED]);
    host.run(`rm ${LAST_RESERVED}`);
  };

  stateTest(`of version ${VERSION} are those that are recorded: else run scripts/record_state`, async () => {
    await addStateAttachments(host);
    expect(shapesOf(host.readState())).toEqual(shapesOf(samples.get(VERSION)!));
    deleteAll();
  });

  for (const [name, sample] of samples) {
    // The test above is about this format.
    if (name === VERSION) continue;
    stateTest(`in the format ${name} serve containers that live`, async () => {
      await addStateAttachments(host);
      const current = host.readState();
      expect(Object.keys(current).map(dirname)).toEqual(Object.keys(sample).map(dirname));
      host.writeState(inFormatOf(sample, current));
      for (const [i, old] of Object.keys(sample).entries()) {
        const path = Object.keys(current)[i]!;
        // Two names of a reservation are one file.
        if (withoutBoot(path) !== withoutBoot(old)) host.run(`mv '${path}' '${old}'`);
      }
      await host.restartServer();

      host.run(commands("check"));
      expect(host.run("cni run list --json").match(/"state": ?"attached"/g)).toHaveLength(STATE_ATTACHMENTS.length);
      host.run("nft flush ruleset; cni run restore");
      for (const valid of ["lan --valid c1", "leased --valid c1/lease0", "device --valid c1/dev0"]) {
        host.run(`cni run gc ${valid} $conf`);
      }
      host.run(commands("check"));
      const addresses = host.run("ip -n c1 -o addr");
      for (const address of ["10.95.0.", "10.7.0."]) expect(addresses).toContain(address);

      deleteAll();
      // What was there before the ADD, which only the files tell.
      expect(host.run("ip netns exec c1 cat /proc/sys/net/core/somaxconn")).toBe("4096\n");
      expect(host.run("ip -o link show dev1")).toContain("mtu 1450");
      expect(host.run("nft list ruleset")).not.toContain("10.95.0.");
    });
  }

  stateTest("of a newer version are named, and kept until a DEL, which succeeds", async () => {
    await addStateAttachments(host);
    const newer = Object.fromEntries(
      Object.entries(host.readState()).map(([path, text]) => [path, isJson(text) ? newerText(text) : text]),
    );
    host.writeState(newer);
    await host.restartServer();
    const ruleset = host.run("nft list ruleset");
    const entries = Object.keys(newer).filter((path) => path.startsWith("/var/lib/cni/results/"));

    const listed = host.start("cni run list").stderr;
    for (const path of entries) {
      expect(listed).toContain(
        `Cannot use cached attachment "${path}": its kind is "cniCacheV2", and this program knows`,
      );
      expect(listed.split(path)).toHaveLength(2);
    }
    const calls: [words: string, exitCode: number, text: string][] = [
      ["add lan c1", 1, "has an interface"],
      ["check lan c1", 1, "cniCacheV2"],
      ["restore", 1, "cniCacheV2"],
      ["gc lan --all", 0, "cniCacheV2"],
      ["gc lan --all", 0, "/tuning/"],
      ["gc device --all", 0, "/host-device/"],
    ];
    for (const [words, exitCode, text] of calls) {
      const done = host.start(`cni run ${words} $conf`);
      expect([words, done.exitCode, done.stderr]).toEqual([words, exitCode, expect.stringContaining(text)]);
      expect(host.readState()).toEqual(newer);
      expect(host.run("nft list ruleset")).toBe(ruleset);
    }

    const said = STATE_ATTACHMENTS.map(([words]) => host.start(`cni run del ${words} $conf`));
    expect(said.map(({ exitCode }) => exitCode)).toEqual(STATE_ATTACHMENTS.map(() => 0));
    const kept = host.readState();
    for (const path of Object.keys(newer).filter((path) => /\/(tuning|dnsname|host-device)\//.test(path))) {
      const line = `Cannot use "${path}": its format is of version 2, and this program knows 1; continuing without it`;
      expect(said.filter(({ stderr }) => stderr.split(line).length === 2)).toHaveLength(1);
    }
    // A newer program needs them to make a device what it was, and to release an address.
    const [lease, device] = Object.keys(newer).filter((path) => /\/(dhcp|host-device)\//.test(path));
    expect(kept).toEqual({ [lease!]: newer[lease!], [device!]: newer[device!], [LAST_RESERVED]: expect.any(String) });
    // Its alias has the name too, as the reference plugin's.
    host.run("ip link show dev1");
    const refused = host.start("cni run add device c1 --ifname dev0 $conf");
    expect([refused.exitCode, refused.stderr]).toEqual([1, expect.stringContaining(device!)]);
    expect(host.readState()).toEqual(kept);
    host.run(`rm '${device}'; cni run add device c1 --ifname dev0 $conf; cni run del device c1 --ifname dev0 $conf`);
  });
});

/** As a later program would write it. */
function newerText(text: string): string {
  const content = JSON.parse(text);
  if (content.kind === "cniCacheV1") return JSON.stringify({ ...content, kind: "cniCacheV2" });
  expect(content.version).toBe(1);
  return JSON.stringify({ ...content, version: 2, news: true });
}
