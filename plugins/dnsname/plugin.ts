/** The `dnsname` plugin: containers of a network find each other by name. The server answers them. */
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { findEntryNames } from "../../ffi/sys/directory.ts";
import { removeWithTemporary } from "../../ffi/sys/atomic_file.ts";
import { modifiedSince } from "../../ffi/sys/mtime.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { checkFailedError, expectEqual } from "../lib/protocol/check_failed.ts";
import { logRemoval, staleOwnerFilter } from "../lib/model/owner.ts";
import {
  type AttachmentCall,
  attemptOrLog,
  plugin,
  type PluginCall,
  requirePrevResult,
  runAllSteps,
} from "../lib/protocol/plugin.ts";
import { requireAvailable } from "../lib/protocol/silent_servers.ts";
import { findState, writeState } from "../lib/protocol/state_file.ts";
import { askNameServer } from "./client.ts";
import { aliasesIn, type DnsnameConfig, dnsnameConfig } from "./config.ts";
import { checkQuestionsComeIn, keepQuestionsOut, keepQuestionsOutAfter, letQuestionsIn } from "./firewalls.ts";
import { containerIdName, netnsName } from "./names.ts";
import { isDnsName } from "../../spec/dns_name.ts";
import { mayBelongTo, type NameRecord, newRecord, parseRecord, recordAddresses, recordFileName } from "./record.ts";
import type { LineOwner } from "./dnsmasq_names.ts";
import { findReferenceDnsmasq } from "./reference_dnsmasq.ts";
import type { ServerReply } from "./protocol.ts";
import { containerAddresses, findServers } from "./servers.ts";

type DnsnameCall = AttachmentCall<DnsnameConfig>;

export default plugin({
  name: "dnsname",
  about: "Lets containers find each other by name",
  config: dnsnameConfig,
  model: (): PluginModel => require("./model.ts").default,
  args: ["K8S_POD_NAME"],

  needsPrevResult: () => true,

  add(call) {
    const result = requirePrevResult(call, "dnsname");
    const record = wantedRecord(call, result);
    call.undo.defer(() => removeRecord(call));
    const dnsmasq = findReferenceDnsmasq(call.owner.network);
    if (dnsmasq) loadDnsmasqNames().addToDnsmasq(dnsmasq, lineOwner(call), recordAddresses(record), record.names);
    else serveRecord(call, record);
    return withDns(result, record);
  },

  del: removeRecord,

  check(call) {
    const wanted = wantedRecord(call, requirePrevResult(call, "dnsname"));
    const dnsmasq = findReferenceDnsmasq(call.owner.network);
    if (dnsmasq && loadDnsmasqNames().isInDnsmasq(dnsmasq, lineOwner(call), recordAddresses(wanted))) return;
    const path = recordPath(call);
    const written = findState(path, parseRecord, call.log);
    if (!written) throw checkFailedError(`there is no usable file "${path}"`, "its names do not resolve");
    for (const key of ["domain", "names", "addresses", "servers"] as const) {
      expectEqual(`"${key}" in "${path}"`, JSON.stringify(written[key]), JSON.stringify(wanted[key]));
    }
    checkQuestionsComeIn(call, wanted.servers, call.owner);
    requireServed(call, askNameServer(call.host, call.config, { command: "look", file: recordFileName(call.owner) }));
  },

  restore(call) {
    if (findReferenceDnsmasq(call.owner.network)) return [];
    return letQuestionsIn(call, wantedRecord(call, requirePrevResult(call, "dnsname")).servers);
  },

  gc(call) {
    const { config, pluginConfig, validAttachments, snapshotTime, log } = call;
    const { dataDir } = config;
    const isStale = staleOwnerFilter(pluginConfig.name, validAttachments, logRemoval(log, "names"));
    const isNewer = modifiedSince(snapshotTime);
    const removed = new Map<string, NameRecord>();
    for (const file of (findEntryNames(dataDir) ?? []).filter(mayBelongTo(pluginConfig.name))) {
      const path = `${dataDir}/${file}`;
      const record = findState(path, parseRecord, log);
      if (!record || !isStale(record.owner) || isNewer(findStat(path)?.mtime ?? 0n)) continue;
      removeWithTemporary(path, log);
      removed.set(JSON.stringify(record.servers), record);
      attemptOrLog(log, () => askNameServer(call.host, config, { command: "changed", file }));
    }
    // One for each set of servers is enough.
    for (const record of removed.values()) keepQuestionsOutAfter(call, record);
    keepQuestionsOut(call);
  },

  status(call) {
    const { host, config } = call;
    loadWritableState().requireWritableState("keep names", config.dataDir);
    if (findReferenceDnsmasq(call.pluginConfig.name)) return;
    requireAvailable(() => {
      if (!askNameServer(host, config, { command: "look" })) warnUnserved(call);
    });
  },
});

function serveRecord(call: DnsnameCall, record: NameRecord): void {
  writeState(recordPath(call), record);
  letQuestionsIn(call, record.servers);
  requireServed(call, tellChanged(call));
}

const recordPath = ({ config, owner }: DnsnameCall): string => `${config.dataDir}/${recordFileName(owner)}`;

function wantedRecord(call: DnsnameCall, result: Result): NameRecord {
  const { host, owner, config, ifname } = call;
  const addresses = containerAddresses(result, ifname);
  const servers = findServers(host, owner.network, result, addresses);
  return newRecord(host, { owner, domain: config.domainName, names: namesOf(call), addresses, servers });
}

const firstName = ({ args, containerId, sandbox }: DnsnameCall): string | undefined =>
  args["K8S_POD_NAME"] || netnsName(containerId, sandbox);

function lineOwner(call: DnsnameCall): LineOwner {
  const id = containerIdName(call.containerId);
  return { name: firstName(call) ?? id, id };
}

/** The first is the one for reverse questions. */
function namesOf(call: DnsnameCall): string[] {
  const { containerId, config, owner, log } = call;
  const all = [
    firstName(call),
    ...aliasesIn(config, owner.network),
    containerIdName(containerId),
  ].filter((name) => name !== undefined);
  for (const name of all.filter((name) => !isDnsName(name))) log(`"${name}" is no name for DNS: it does not resolve`);
  return [...new Set(all.filter(isDnsName))];
}

/** A server that starts later serves the record, so none at all is no error. @throws {CniError} */
function requireServed(call: DnsnameCall, reply: ServerReply | undefined): void {
  if (!reply) return warnUnserved(call);
  const { config, host, owner } = call;
  const [problem] = reply.problems;
  if (problem) throw loadListenError().listenError(host, problem);
  if (reply.refused === undefined) return;
  throw new CniError(Code.Internal, `Cannot serve names of network "${owner.network}": ${reply.refused}`, {
    details: `it listens on "${config.daemonSocketPath}"`,
  });
}

/** Rarely needed: not loaded at start-up. */
function loadListenError(): typeof import("./listen_error.ts") {
  return require("./listen_error.ts");
}

function warnUnserved({ pluginConfig, config, log }: PluginCall<DnsnameConfig>): void {
  log(
    `Names of network "${pluginConfig.name}" do not resolve: no server listens on "${config.daemonSocketPath}"; ` +
      `start one: systemctl enable --now cni.socket, or cni serve`,
  );
}

const tellChanged = ({ host, config, owner }: DnsnameCall): ServerReply | undefined =>
  askNameServer(host, config, { command: "changed", file: recordFileName(owner) });

/** Succeeds without a server: the next one does not find the file. */
function removeRecord(call: DnsnameCall): void {
  const { log } = call;
  const record = findState(recordPath(call), parseRecord, log);
  removeWithTemporary(recordPath(call), log);
  const dnsmasq = findReferenceDnsmasq(call.owner.network);
  runAllSteps(
    () => void (dnsmasq && loadDnsmasqNames().removeFromDnsmasq(dnsmasq, lineOwner(call))),
    () => attemptOrLog(log, () => tellChanged(call)),
    () => void (record && keepQuestionsOutAfter(call, record)),
  );
}

function withDns(result: Result, { servers, domain }: NameRecord): Result {
  const { nameservers = [], search = [], ...dns } = result.dns ?? {};
  return {
    ...result,
    dns: {
      ...dns,
      nameservers: [...new Set([...servers.map(({ address }) => address), ...nameservers])],
      ...(domain !== "" || search.length > 0) && { search: [...new Set([...search, ...domain ? [domain] : []])] },
    },
  };
}

/** Only STATUS needs it: not loaded at start-up. */
function loadWritableState(): typeof import("../lib/protocol/writable_state.ts") {
  return require("../lib/protocol/writable_state.ts");
}

function loadDnsmasqNames(): typeof import("./dnsmasq_names.ts") {
  return require("./dnsmasq_names.ts");
}
