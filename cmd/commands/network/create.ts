import { type Cidr, networkOf, parseCidr, parseIp } from "../../../ffi/address.ts";
import { printStdout } from "../../../ffi/sys/stdio.ts";
import { loadPlugins } from "../../../plugins/registry.ts";
import type { LintReport } from "../../../networks/lint/lint.ts";
import { type CreatedNetwork, createNetwork, networkFileText } from "../../../networks/create.ts";
import {
  NETWORK_DRIVERS,
  type NetworkDriver,
  type NetworkRequest,
  NetworkRequestError,
} from "../../../networks/new_network.ts";
import { formatDocument } from "../../output/document.ts";
import { DIRECTORY_OPTIONS, PRINT_JSON_OPTION } from "../../arguments/network.ts";
import { confDirectory, DRY_RUN_OPTION, log, openRuntime, runtimeOptions } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { loadDocumentedBuiltins } from "../../documented_builtins.ts";
import { type ParsedOptions, parseOrUsageError } from "../../options.ts";
import { UsageError } from "../../../program/usage_error.ts";

const create: Command = {
  name: "create",
  summary: "write the configuration of a new network",
  description:
    `Chooses a subnet that no other network uses and the host has no route to. The file sorts behind those that are there,
so engines that use the first file keep their network. Until a container is attached, nothing else changes.`,
  arguments: [{ name: "NAME", help: "a letter or digit, then letters, digits, _ . and -" }],
  options: [
    {
      name: "driver",
      short: "d",
      value: "DRIVER",
      choices: NETWORK_DRIVERS,
      help: `the plugin that connects containers: ${NETWORK_DRIVERS.join(", ")} (bridge)`,
    },
    { name: "subnet", value: "SUBNET", help: "its addresses: 10.5.0.0/24; one of IPv4 and one of IPv6" },
    { name: "gateway", value: "IP", help: "the host's address in a subnet (the first one)" },
    { name: "ip-range", value: "SUBNET", help: "the part of a subnet that containers get addresses from" },
    { name: "ipv6", help: "give it an IPv6 subnet too" },
    { name: "internal", help: "without gateway and default route: containers reach only each other" },
    { name: "dns", help: "containers find each other by name, while cni serve runs" },
    { name: "mtu", value: "NUMBER", help: "bytes of the largest packet" },
    { name: "vlan", value: "NUMBER", help: "with driver bridge: the VLAN of the containers' ports" },
    {
      name: "option",
      short: "o",
      value: "K=V",
      help: 'a key of the driver\'s plugin, see "cni plugin DRIVER"; also parent=IFNAME, isolate=true',
    },
    { ...DRY_RUN_OPTION, help: "write nothing; print the file's content, and its path on stderr" },
    PRINT_JSON_OPTION,
    ...DIRECTORY_OPTIONS,
  ],
  examples: [
    { command: "cni network create web", about: "a bridge with a subnet that is free" },
    {
      command: "cni network create db --subnet 10.5.0.0/24 --ipv6 --internal",
      about: "containers reach only each other",
    },
    {
      command: "cni network create lan -d macvlan -o parent=eth0 --subnet 192.0.2.0/24 --ip-range 192.0.2.128/25",
      about: "a part of the network that eth0 is on",
    },
    { command: "cni network create web --dry-run", about: "see the configuration first" },
  ],
  async run(input, context) {
    const request = parseRequest(input);
    const runtime = openRuntime(input, context);
    await loadPlugins([request.driver, "host-local", "portmap", "firewall", "dnsname"]);
    await loadDocumentedBuiltins();
    const { lintFiles } = await import("../../../networks/lint/lint.ts");
    const directory = confDirectory(input, context);
    const { pluginDirectories = [] } = runtimeOptions(input, context);
    const createAndLint = (): Created => {
      const created = createNetwork(runtime, directory, request);
      return { created, report: lintFiles([directory, created.file], { pluginDirectories }) };
    };
    const isDryRun = input.has(DRY_RUN_OPTION.name);
    const { created, report } = asUsageError(isDryRun ? await inDryRun(createAndLint) : createAndLint);
    logProblems(created.file, report);
    if (request.dns) log("--dns: containers can be attached only while cni serve runs, which answers for their names");
    if (isDryRun) log(`would create "${created.file}"`);
    const text = isDryRun ? networkFileText(created.configuration) : `${created.file}\n`;
    printStdout(input.has(PRINT_JSON_OPTION.name) ? formatDocument(created) : text);
  },
};
export default create;

interface Created {
  readonly created: CreatedNetwork;
  readonly report: LintReport;
}

/** @returns carries out `run` without its changes */
async function inDryRun<T>(run: () => T): Promise<() => T> {
  const { dryRun } = await import("../../../inspect/effects/dry_run.ts");
  return () => {
    const results: T[] = [];
    const { failure } = dryRun(() => results.push(run()));
    if (failure !== undefined) throw failure;
    return results[0]!;
  };
}

/** An error would have been refused; warnings are the user's to judge. */
function logProblems(file: string, { problems }: LintReport): void {
  const own = problems.filter((problem) => problem.file === file && problem.severity !== "note");
  for (const { path, message } of own) log(`${file}: ${path}: ${message}`);
}

function parseRequest(input: ParsedOptions): NetworkRequest {
  const [name = ""] = input.words;
  const mtu = parseNumber(input, "mtu", 65535);
  const vlan = parseNumber(input, "vlan", 4094);
  return {
    name,
    driver: (input.find("driver") ?? "bridge") as NetworkDriver,
    subnets: parseSubnets(input, "subnet"),
    gateways: input.list("gateway").map((text) => parseOrUsageError("--gateway", text, parseIp, "10.5.0.1")),
    ipRanges: parseSubnets(input, "ip-range"),
    ipv6: input.has("ipv6"),
    internal: input.has("internal"),
    dns: input.has("dns"),
    ...mtu !== undefined && { mtu },
    ...vlan !== undefined && { vlan },
    options: new Map(input.list("option").map(parsePair)),
  };
}

function parseSubnets(input: ParsedOptions, option: string): Cidr[] {
  return input.list(option).map((text) => {
    const cidr = parseOrUsageError(`--${option}`, text, parseCidr, "10.5.0.0/24");
    if (networkOf(cidr) === cidr) return cidr;
    throw new UsageError(`--${option} must be a network, such as ${networkOf(cidr)}: got "${text}"`);
  });
}

function parseNumber(input: ParsedOptions, option: string, max: number): number | undefined {
  const text = input.find(option);
  if (text === undefined) return undefined;
  if (/^[1-9][0-9]{0,4}$/.test(text) && Number(text) <= max) return Number(text);
  throw new UsageError(`--${option} must be a number from 1 to ${max}: got "${text}"`);
}

function parsePair(text: string): [key: string, value: string] {
  const equals = text.indexOf("=");
  if (equals > 0) return [text.slice(0, equals), text.slice(equals + 1)];
  throw new UsageError(`--option must be KEY=VALUE: got "${text}"`);
}

function asUsageError<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw error instanceof NetworkRequestError ? new UsageError(`"network create": ${error.message}`) : error;
  }
}
