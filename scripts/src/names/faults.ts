/**
 * Faults at system calls of the plugin `dnsname` and of its server: whatever fails, names are right in the end.
 *
 * @module
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type FinishedProcess, runPlugin } from "../../../testing/binary.ts";
import { newBridgeNetwork } from "../../../testing/bridge_network.ts";
import { dig, type DigAnswer, type NameServerProcess, newNameSite, startNameServer } from "../../../testing/dnsname.ts";
import { startDnsmasq } from "../../../testing/dnsmasq.ts";
import { runShellInNetns } from "../../../testing/netns.ts";
import { nftListRuleset } from "../../../testing/ruleset.ts";
import plugin from "../../../plugins/dnsname/plugin.ts";
import { type Fault, isSignal } from "../faults/fault.ts";
import {
  casesOfFaults,
  failedOutcome,
  type FaultCase,
  type FaultOutcome,
  type FaultReport,
  type FaultSelection,
  tryCases,
} from "../faults/fault_case.ts";
import { faultsOfTrace, wasReached } from "../faults/plan.ts";
import { straceCommand } from "../faults/strace.ts";
import { requireSameState } from "../harness/node_state.ts";
import { runBesideTracer } from "../harness/tracer.ts";

/** Other machines' names all have this address. */
const OUTSIDE_ADDRESS = "198.51.100.7";
/** A firewall that drops what no rule accepts. */
const FOREIGN_FIREWALL =
  "nft 'table inet foreign { chain input { type filter hook input priority 0; policy drop; ct state established accept; }; }'";

/** An upper bound for what is sure to happen, however much the machine has to do. */
const END_TIMEOUT_MS = 20_000;

const VERBS = ["ADD", "CHECK", "DEL", "GC"] as const;
type FaultyVerb = (typeof VERBS)[number];

export async function* runNameFaults(selection: FaultSelection): AsyncGenerator<FaultReport> {
  const { words } = selection;
  using resources = new DisposableStack();
  const node = await newNode(resources);
  const verbs = words.includes("server") ? [] : VERBS.filter((verb) => !isOther(verb, VERBS, words));
  const cases = verbs.flatMap((verb) => pluginCases(node, verb));
  if (!isOther("server", ["server", "plugin", ...VERBS], words)) cases.push(...serverCases(node));
  const recovering = cases.map((faultCase) => ({ ...faultCase, run: () => runOrStartAgain(node, faultCase) }));
  // Reads what the resolver logs, which would wait for that.
  yield* tryCases(recovering, selection, () => Bun.sleep(0));
}

async function runOrStartAgain(node: Node, { run }: FaultCase): Promise<FaultOutcome> {
  try {
    return await run();
  } catch (error) {
    await node.startAgain();
    node.run("DEL");
    return failedOutcome(error);
  }
}

/** Whether the words ask for another one of all. */
const isOther = (name: string, all: readonly string[], words: readonly string[]): boolean =>
  !words.includes(name) && words.some((word) => all.includes(word));

/** A host with one container that stays, and one that comes and goes. */
interface Node {
  readonly server: () => NameServerProcess;
  /** As the supervisor does with a server that ended. */
  startAgain(): Promise<void>;
  /** The plugin, for the container that comes and goes. */
  run(verb: FaultyVerb, wrapper?: readonly string[]): FinishedProcess;
  /** What the container that stays hears of a name. */
  ask(...words: string[]): DigAnswer | undefined;
  /** Names of the server's records, and the rules of the host. */
  snapshot(): readonly string[];
  /** The trace of one experiment. */
  readonly log: string;
}

async function newNode(resources: DisposableStack): Promise<Node> {
  const network = newBridgeNetwork(resources);
  runShellInNetns(network.host, FOREIGN_FIREWALL);
  const site = resources.use(newNameSite("nameserver 192.0.2.2\n"));
  resources.use(await startDnsmasq(network.outside, "192.0.2.2", `--address=/example.test/${OUTSIDE_ADDRESS}`));
  let server = startNameServer(network.host, site.paths);
  resources.defer(() => server[Symbol.dispose]());
  const [resident, subject] = [network.container(2), network.container(3)];
  network.call(plugin, "ADD", site.config, { container: resident, containerId: "resident" });
  const config = { cniVersion: "1.1.0", name: "web", type: "dnsname", ...site.config };
  const valid = { "cni.dev/valid-attachments": [{ containerID: "resident", ifname: "eth0" }] };
  return {
    server: () => server,
    log: join(site.directory, "trace"),
    async startAgain() {
      await server.kill();
      server = startNameServer(network.host, site.paths);
    },
    run: (verb, wrapper = []) =>
      network.host.run(() =>
        runPlugin("dnsname", {
          wrapper,
          inOwnProcess: true,
          env: { CNI_COMMAND: verb, CNI_CONTAINERID: "subject", CNI_NETNS: subject.netns.path },
          stdin: JSON.stringify({ ...config, ...verb === "GC" ? valid : { prevResult: subject.result } }),
        })
      ),
    ask: (...words) => dig(resident.netns, "@10.88.0.1", ...words),
    snapshot: () => [...readdirSync(site.paths.state).sort(), ...nftListRuleset(network.host).split("\n")],
  };
}

function mustSucceed(node: Node, verb: FaultyVerb): void {
  const { exitCode, stdout, stderr } = node.run(verb);
  if (exitCode !== 0) throw new Error(`${verb} ended with ${exitCode}: ${stdout}${stderr}`);
}

/** @throws {Error} if the answer is not that address, or for `undefined` if there is one */
function requireAnswer({ ask }: Node, address: string | undefined, ...words: string[]): void {
  const answer = ask(...words);
  const values = (answer?.answers ?? []).map((line) => line.split(" ").at(-1));
  const expected = address === undefined ? [] : [address];
  if (answer && values.join() === expected.join()) return;
  throw new Error(`Asked for ${words.join(" ")}, got ${answer ? `${answer.status} ${values}` : "no answer"}`);
}

/** @throws {Error} if a repeated DEL does not bring back the state before, or if names do not follow what comes next */
function requireRecovery(node: Node, before: readonly string[]): void {
  const requireBefore = (after: string) => {
    requireSameState(`After ${after}`, before, node.snapshot());
    requireAnswer(node, undefined, "subject.dns.test");
  };
  mustSucceed(node, "DEL");
  requireBefore("a repeated DEL");
  mustSucceed(node, "ADD");
  mustSucceed(node, "CHECK");
  for (const words of [["subject"], ["+tcp", "subject.dns.test"]]) requireAnswer(node, "10.88.0.3", ...words);
  requireAnswer(node, "10.88.0.2", "resident");
  requireAnswer(node, OUTSIDE_ADDRESS, nextOutsideName());
  mustSucceed(node, "DEL");
  requireBefore("another ADD and DEL");
}

let outsideNames = 0;
/** One that no cache has. */
const nextOutsideName = (): string => `name${++outsideNames}.example.test`;

function pluginCases(node: Node, verb: FaultyVerb): readonly FaultCase[] {
  if (verb !== "ADD") mustSucceed(node, "ADD");
  const { exitCode, stdout } = node.run(verb, straceCommand(node.log, undefined, true));
  if (exitCode !== 0) throw new Error(`${verb} without any fault: ${stdout}`);
  const faults = faultsOfTrace(readFileSync(node.log, "utf8"));
  mustSucceed(node, "DEL");
  return casesOfFaults(faults, `plugin ${verb} `, (fault) => tryPluginFault(node, verb, fault));
}

function tryPluginFault(node: Node, verb: FaultyVerb, fault: Fault): FaultOutcome {
  const before = node.snapshot();
  if (verb !== "ADD") mustSucceed(node, "ADD");
  const { exitCode, stdout, stderr } = node.run(verb, straceCommand(node.log, fault, true));
  const isReached = wasReached(readFileSync(node.log, "utf8"), fault);
  const isSuccess = exitCode === 0;
  const isRefusal = exitCode === 1 && typeof JSON.parse(stdout).code === "number";
  if (!isSuccess && !isRefusal && !isSignal(fault.kind)) {
    throw new Error(`It ended with ${exitCode}: ${stdout}${stderr}`);
  }
  const isUndone = verb === "ADD" ? isRefusal : verb !== "CHECK" && isSuccess;
  if (isUndone) requireSameState("It left", before, node.snapshot());
  // Without a server, ADD attaches the container and says so.
  const isWarned = stderr.includes("do not resolve: no server listens");
  if (verb === "ADD" && isSuccess && !isWarned) requireAnswer(node, "10.88.0.3", "subject");
  requireRecovery(node, before);
  return { result: !isReached ? "not reached" : isSuccess ? "succeeded" : isRefusal ? "refused" : "ended" };
}

function serverCases(node: Node): readonly FaultCase[] {
  const faults = faultsOfTrace(traceOfServer(node), true);
  return casesOfFaults(faults, "server ", (fault) => tryServerFault(node, fault));
}

/** All that the server does: records that come and go, its own names over UDP and TCP, and names of others. */
function useServer(node: Node): void {
  node.run("ADD");
  for (const words of [["subject"], ["+tcp", "subject"], [nextOutsideName()], ["+tcp", nextOutsideName()]]) {
    const answer = node.ask("+timeout=2", ...words);
    const values = (answer?.answers ?? []).map((line) => line.split(" ").at(-1)!);
    const wrong = values.filter((value) => ![OUTSIDE_ADDRESS, "10.88.0.3"].includes(value));
    if (wrong.length > 0) throw new Error(`Asked for ${words.join(" ")}, got ${values}`);
  }
  node.run("DEL");
}

function traceOfServer(node: Node, fault?: Fault): string {
  runBesideTracer(straceCommand(node.log, fault, false), [node.server().pid], () => useServer(node));
  return readFileSync(node.log, "utf8");
}

async function tryServerFault(node: Node, fault: Fault): Promise<FaultOutcome> {
  const before = node.snapshot();
  const isReached = wasReached(traceOfServer(node, fault), fault, true);
  const isLost = isSignal(fault.kind) ? isReached : node.ask("resident") === undefined;
  const hasEnded = isLost && await hasEndedInTime(node.server());
  if (isLost && !hasEnded) throw new Error("The server neither answers nor ends");
  if (hasEnded && !isSignal(fault.kind)) throw new Error(`The server ended: ${node.server().log()}`);
  if (hasEnded) await node.startAgain();
  requireRecovery(node, before);
  return { result: !isReached ? "not reached" : hasEnded ? "ended" : "succeeded" };
}

const hasEndedInTime = ({ exited }: NameServerProcess): Promise<boolean> =>
  Promise.race([exited.then(() => true), Bun.sleep(END_TIMEOUT_MS).then(() => false)]);
