/** Everything that a bug report needs, as one document. It changes nothing and runs no program. */
import { listListeners } from "../../ffi/diag/listeners.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import * as nft from "../../ffi/nft/objects.ts";
import * as link from "../../ffi/route/link.ts";
import * as neighbour from "../../ffi/route/neighbour.ts";
import * as rule from "../../ffi/route/rule.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { findKernelText, readText } from "../../ffi/sys/file.ts";
import { AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import { inetTable } from "../../plugins/lib/ruleset/inet_table.ts";
import { CniError, ConfigError } from "../../spec/error.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { formatResult } from "../../spec/result.ts";
import { LATEST } from "../../spec/version.ts";
import { listAttachments } from "../../runtime/attachments.ts";
import { type RuntimeOptions, withRuntimeContext } from "../../runtime/runtime.ts";
import { ruleText } from "../show/rule_text.ts";
import type { DoctorReport } from "./doctor.ts";
import type { UnusableFile } from "./networks_to_examine.ts";
import { lookUpSubject, type NetnsSnapshot, takeNetnsSnapshot } from "./subject.ts";

export interface Bundle {
  readonly program: string;
  /** `/proc/version` */
  readonly kernel: string;
  readonly report: DoctorReport;
  readonly networks: readonly { readonly source: string; readonly text: string }[];
  readonly attachments: readonly object[];
  readonly host: NetnsState;
  /** The keys are paths of their namespaces. */
  readonly containers: Readonly<Record<string, NetnsState>>;
  readonly ruleset: readonly object[];
  /** Elements of the sets and maps of table `inet cni`. */
  readonly elements: Readonly<Record<string, readonly object[]>>;
}

export interface NetnsState {
  readonly links: readonly object[];
  readonly addresses: readonly object[];
  readonly routes: readonly object[];
  readonly rules: readonly object[];
  readonly neighbours: readonly object[];
  readonly sysctls: Readonly<Record<string, string>>;
  readonly listeners: readonly object[];
}

/** Call it with all plugins loaded. @param program its name and version */
export function collectBundle(
  options: RuntimeOptions,
  networks: readonly (NetworkConfigList | UnusableFile)[],
  report: DoctorReport,
  program: string,
): Bundle {
  return withRuntimeContext(options, (runtime) => {
    using resources = new DisposableStack();
    const usable = networks.filter((network) => "name" in network);
    const subjects = usable.flatMap((network) =>
      ignoreUnusable(() => lookUpSubject(runtime, network, undefined, resources)) ?? []
    );
    const { host } = runtime.hostContext;
    const snapshots = subjects.flatMap(({ containers }) => containers.map(({ state }) => state));
    return {
      program,
      kernel: readText("/proc/version").trim(),
      report,
      networks: usable.map(({ source = "standard input", text }) => ({ source, text })),
      attachments: listAttachments(runtime.cacheDirectory, runtime.hostContext).map(({ result, ...rest }) => ({
        ...rest,
        ...result && { result: formatResult(result, LATEST) },
      })),
      host: describeNetns(takeNetnsSnapshot(host)),
      containers: Object.fromEntries(snapshots.map((state) => [state.netns.path, describeNetns(state)])),
      ruleset: ignoreSystemErrors(() => describeRuleset(host.nft)) ?? [],
      elements: ignoreSystemErrors(() => describeElements(host.nft)) ?? {},
    };
  });
}

/** The report says why a configuration cannot be used. */
function ignoreUnusable<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof ConfigError || error instanceof CniError) return undefined;
    throw error;
  }
}

function describeNetns(state: NetnsSnapshot): NetnsState {
  const { netns, links, addresses, routes } = state;
  return {
    links: links.map((device) => ({
      index: device.index,
      name: device.name,
      kind: device.info?.kind,
      mac: device.mac,
      mtu: device.mtu,
      isUp: link.isUp(device),
      isRunning: link.isRunning(device),
      master: device.master,
      linkIndex: device.linkIndex,
      linkNetnsId: device.linkNetnsId,
      alias: device.alias,
    })),
    addresses,
    routes,
    rules: rule.list(netns.route),
    neighbours: [AF_INET, AF_INET6].flatMap((family) => neighbour.list(netns.route, family)),
    sysctls: readSysctls(state),
    listeners: [IPPROTO_TCP, IPPROTO_UDP].flatMap((protocol) =>
      (ignoreSystemErrors(() => listListeners(netns.diag, protocol, 1, 65535)) ?? []).map((listener) => ({
        protocol,
        ...listener,
      }))
    ),
  };
}

function readSysctls({ links, netns }: NetnsSnapshot): Record<string, string> {
  const names = ["all", "default", ...links.flatMap(({ name }) => name ?? [])];
  const settings = [
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_count",
    "net/netfilter/nf_conntrack_max",
    ...["iptables", "ip6tables", "arptables"].map((suffix) => `net/bridge/bridge-nf-call-${suffix}`),
    ...names.flatMap((name) => [
      ...["forwarding", "rp_filter", "route_localnet", "arp_ignore", "proxy_arp"].map((key) =>
        `net/ipv4/conf/${name}/${key}`
      ),
      ...["forwarding", "disable_ipv6", "accept_ra", "accept_dad"].map((key) => `net/ipv6/conf/${name}/${key}`),
    ]),
  ];
  const values = netns.run<[string, string | undefined][]>(() =>
    settings.map((name) => [name, findKernelText(`/proc/sys/${name}`)?.trim()])
  );
  return Object.fromEntries(values.flatMap(([name, value]) => value === undefined ? [] : [[name, value]]));
}

function describeRuleset(nl: Netlink): object[] {
  return nft.listTables(nl).map(({ family, name: table = "", flags, comment }) => ({
    family,
    table,
    flags,
    comment,
    chains: nft.listChains(nl, { family, table }).map(({ name = "", type, hook, policy }) => ({
      name,
      type,
      hook,
      policy,
      rules: nft.listLazyRules(nl, { family, table }, name).map((found) => ({
        handle: Number(found.handle),
        text: ruleText(found.expressions(), family),
        comment: found.comment,
      })),
    })),
  }));
}

function describeElements(nl: Netlink): Record<string, object[]> {
  return Object.fromEntries(
    nft.listSets(nl, inetTable).map(({ name = "" }) => [
      name,
      nft.listElements(nl, inetTable, name).map(({ key, data, comment }) => ({
        key: key.toHex(),
        ...data?.value ? { value: data.value.toHex() } : { verdict: data?.verdict },
        comment,
      })),
    ]),
  );
}
