/** Elements of many attachments that come back from the copy. Others come back as their plugins restore them. */
import { expect } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { restoreAttachments } from "../runtime/restore.ts";
import { withRuntimeContext } from "../runtime/runtime.ts";
import { restoreCopied } from "./copied_restore.ts";
import { RulesetCopy } from "./ruleset_copy.ts";
import { policyNamespacesPath } from "../plugins/lib/policy/stored_namespaces.ts";
import { stateText } from "../plugins/lib/protocol/state_file.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import {
  byProgram,
  callAsEngine,
  changeResult,
  type HealedHost,
  healTest,
  removeResult,
  sortedListing,
} from "../testing/healed_host.ts";
import { newNetns } from "../testing/netns.ts";

await loadPlugins();

const MANY = { minCopied: 2 };

function attachMany({ attach }: HealedHost): void {
  for (const id of ["c1", "c2", "c3", "c4"]) attach(id);
}

for (
  const command of [
    "flush ruleset",
    "delete table inet cni",
    "flush map inet cni hostports4",
    "flush set inet cni owners",
  ]
) {
  healTest(`after "${command}", many attachments have what they had`, (healed) => {
    const { newHealer, round, nft, log, check } = healed;
    attachMany(healed);
    const healer = newHealer(MANY);
    round(healer);
    const before = sortedListing(nft("-s", "list", "ruleset"));
    nft(command);
    round(healer);
    expect(sortedListing(nft("-s", "list", "ruleset"))).toEqual(before);
    expect(["c1", "c4"].map(check)).toEqual(["", ""]);
    expect(log).toEqual([
      expect.stringMatching(/^Restored rules of 4 attachments after changes by "nft".*(elements of "| and 7 more)/),
    ]);
  });
}

healTest("ports come back with the chains that the first of them makes", (healed) => {
  const { host, directory, nft, log } = healed;
  attachMany(healed);
  const copy = new RulesetCopy();
  copy.read(host.nft);
  const before = sortedListing(nft("-s", "list", "ruleset"));
  // As after a flush, and an ADD without ports before the healer looks.
  for (const set of ["hostports4", "loopback4"]) nft("flush map inet cni", set);
  for (const name of ["calls", "answers", "input"]) {
    nft(`flush chain inet cni loopback_${name}; delete chain inet cni loopback_${name}`);
  }
  const options = {
    env: {},
    pluginDirectories: [],
    cacheDirectory: join(directory, "cache"),
    log: (line: string) => void log.push(line),
  };
  const { report, entries } = host.run(() =>
    withRuntimeContext(options, (runtime) =>
      restoreCopied(runtime, copy, {
        minAttachments: 2,
        maxWaitMs: 1000,
        isElsewhere: () => false,
        keepUnchanged: (entries) => entries,
        restoreByPlugins: (isWanted) => restoreAttachments(runtime, undefined, { isWanted }),
      }))
  );
  expect([report?.attachments.length, entries.length]).toEqual([1, 3]);
  expect(sortedListing(nft("-s", "list", "ruleset"))).toEqual(before);
});

healTest("elements come back in a set that one plugin alone knows", (healed) => {
  const { newHealer, round, nft } = healed;
  attachMany(healed);
  nft("add set inet cni hiding { type ipv4_addr; }");
  for (const n of [1, 2, 3, 4]) nft(`add element inet cni hiding { 10.9.0.${n} comment "web c${n} eth0" }`);
  const healer = newHealer(MANY);
  round(healer);
  const before = sortedListing(nft("-s", "list", "set", "inet", "cni", "hiding"));
  nft("flush set inet cni hiding");
  round(healer);
  expect(sortedListing(nft("-s", "list", "set", "inet", "cni", "hiding"))).toEqual(before);
});

healTest("the copy brings nothing back of what ended or changed since the loss", (healed) => {
  const { newHealer, round, nft, log, attach } = healed;
  for (const id of ["c1", "c2", "c3", "c4", "c5", "c6"]) attach(id);
  const healer = newHealer(MANY);
  round(healer);
  // A DEL that has begun.
  callAsEngine(healed, "portmap", "DEL", "c2");
  nft("flush ruleset");
  // A DEL that is over, and found nothing.
  removeResult(healed, "c3");
  // An ADD after a DEL that found nothing.
  callAsEngine(healed, "firewall", "ADD", "c4");
  changeResult(healed, "c4", { capabilityArgs: {} });
  // A container that is gone.
  changeResult(healed, "c6", { netns: "/nonexistent" });
  round(healer);
  const ruleset = nft("list", "ruleset");
  expect(ruleset).not.toMatch(/web c[236] eth0/);
  expect(nft("list", "map", "inet", "cni", "masquerade4")).toContain("web c4 eth0");
  const ports = nft("list", "map", "inet", "cni", "hostports4");
  expect(["c1", "c4", "c5"].filter((id) => ports.includes(`web ${id} eth0`))).toEqual(["c1", "c5"]);
  expect(log).toEqual([
    expect.stringMatching(/^Restored rules of 3 attachments .* and 7 more$/),
  ]);
});

healTest("after changes that the kernel could not report, and for UDP, plugins are called", (healed) => {
  const { newHealer, round, nft, log, attach, shell, check } = healed;
  for (const id of ["c1", "c2", "c3"]) attach(id, undefined, undefined, "udp");
  const healer = newHealer(MANY);
  round(healer);
  nft("flush map inet cni hostports4");
  round(healer);
  const tcp = newHealer({ ...MANY, bufferBytes: 4096 });
  attach("c4");
  attach("c5");
  round(tcp);
  const rules = Array.from({ length: 1000 }, (_, i) => `add rule ip t c ip saddr 10.0.${i >> 8}.${i & 255} drop`);
  shell(`nft -f - <<'END'\nadd table ip t\nadd chain ip t c\n${rules.join("\n")}\nEND`);
  nft("flush map inet cni hostports4");
  round(tcp);
  expect(["c1", "c2", "c3", "c4", "c5"].map(check)).toEqual(["", "", "", "", ""]);
  expect(log).toEqual([byProgram("nft"), expect.stringMatching(/more changes than the kernel could report/)]);
  expect(log.join()).not.toContain("elements of");
});

healTest("pods that policies may isolate are closed after a flush, however many there are", (healed) => {
  const { host, directory, newHealer, round, nft, runtime } = healed;
  const ipam = { type: "host-local", dataDir: join(directory, "ipam"), ranges: [[{ subnet: "10.8.0.0/24" }]] };
  // Nobody listens there.
  const policy = { type: "network-policy", socketPath: join(directory, "socket"), dataDir: directory };
  const plugins = [{ type: "ptp", ipMasq: true, ipam }, policy];
  const pods = parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "pods", plugins }));
  mkdirSync(join(directory, "policy"));
  writeFileSync(policyNamespacesPath(directory), stateText({ namespaces: ["isolated"] }));
  using resources = new DisposableStack();
  for (const [containerId, namespace] of [["c1", "isolated"], ["c2", "isolated"], ["c3", "open"]] as const) {
    const { path } = resources.use(newNetns());
    const args = Object.entries({ IgnoreUnknown: "1", K8S_POD_NAMESPACE: namespace, K8S_POD_NAME: containerId });
    host.run(() => void runtime().add(pods, { containerId, ifname: "eth0", netns: path, args }));
  }
  const healer = newHealer({ minCopied: 1 });
  round(healer);
  const closed = () => nft("list", "map", "inet", "cni_policy", "ingress4").match(/10\.8\.0\.\d+/g);
  expect(closed()).toEqual(["10.8.0.2", "10.8.0.3"]);
  nft("flush", "ruleset");
  round(healer);
  expect(closed()).toEqual(["10.8.0.2", "10.8.0.3"]);
});
