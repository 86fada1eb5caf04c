import type { PluginModel } from "../lib/model/plugin_model.ts";
import { hasSettings } from "./link_state.ts";
import type { Mac } from "../../ffi/address.ts";
import { removeRulesIfSupported } from "../lib/ruleset/nf_tables_support.ts";
import {
  type AddCall,
  type AttachmentCall,
  attemptOrLog,
  type Plugin,
  plugin,
  type PluginCall,
  requirePrevResult,
} from "../lib/protocol/plugin.ts";
import type { Interface, Result } from "../../spec/result.ts";
import { ALLOWLIST_PATH, refuseDisallowed } from "./allowlist.ts";
import { filterWithBackup, gcBackups } from "./backup.ts";
import { requestedLinkState, type TuningConfig, tuningConfig } from "./config.ts";
import type { LinkState } from "./link_state.ts";
import { refuseDuplicateSysctls, requestedSysctls } from "./sysctls.ts";
import { applyChanges, type Changes, removeBackup, restoreChanges } from "./apply.ts";

export function tuning(allowlist: string = ALLOWLIST_PATH): Plugin<TuningConfig> {
  return plugin<TuningConfig>({
    name: "tuning",
    about: "Sets kernel parameters, MAC address, MTU and flags",
    config: tuningConfig,
    model: (): PluginModel => require("./model.ts").default,
    args: ["MAC"],

    needsPrevResult: () => true,

    validate: (call) => void readWithoutAttachment(call),

    add(call) {
      const result = requirePrevResult(call, "tuning");
      const changes = readChanges(call);
      refuseDisallowed(allowlist, changes.sysctls.map(({ key }) => key));
      applyChanges(call, changes);
      if (changes.linkState.mac) allowMac(call, changes.linkState.mac);
      return withLinkState(result, call.ifname, changes.linkState);
    },

    /** Never fails: a value that cannot be restored must not keep the container attached. */
    del(call) {
      try {
        restoreChanges(call);
      } catch {
        // The obstacle may be gone by now. The backup of a dead container must not stay in any case.
        for (const step of [restoreChanges, removeBackup]) attemptOrLog(call.log, () => step(call));
      }
    },

    /** Most attachments have no backup, because nothing changed. */
    delBatch(calls) {
      return filterWithBackup(calls[0].config.dataDir, calls);
    },

    check(call) {
      requirePrevResult(call, "tuning");
      loadWanted().checkTuning(call, readChanges(call));
    },

    gc({ config, pluginConfig, validAttachments, snapshotTime, log }) {
      gcBackups(
        config.dataDir,
        snapshotTime,
        ({ network, containerID, ifname }) =>
          network === pluginConfig.name &&
          !validAttachments.some((attachment) =>
            attachment.containerId === containerID && attachment.ifname === ifname
          ),
        log,
      );
    },

    status({ config, pluginConfig }) {
      const { sysctls, linkState } = readWithoutAttachment({ config, pluginConfig });
      refuseDisallowed(allowlist, sysctls.map(({ key }) => key));
      if (sysctls.length > 0 || hasSettings(linkState)) {
        loadWritableState().requireWritableState("keep former settings", config.dataDir);
      }
    },
  });
}

export default tuning();

/** With macspoofchk, `bridge` accepts frames of one MAC address only. */
function allowMac({ host, owner, undo }: AddCall<TuningConfig>, mac: Mac): void {
  removeRulesIfSupported(host, false, (nl) => undo.defer(loadSpoofCheck().moveSpoofCheck(nl, owner, mac)));
}

/** `require` saves loading it at start-up: only a MAC address needs it. */
function loadSpoofCheck(): typeof import("../lib/veth/spoof_check.ts") {
  return require("../lib/veth/spoof_check.ts");
}

function readWithoutAttachment(call: Pick<PluginCall<TuningConfig>, "config" | "pluginConfig">): Changes {
  return readChanges({ ...call, ifname: "IFNAME", args: {} });
}

function readChanges(
  { pluginConfig, ifname, config, args }: Pick<
    AttachmentCall<TuningConfig>,
    "pluginConfig" | "ifname" | "config" | "args"
  >,
): Changes {
  // `raw` has no duplicate keys, but may have two spellings of one parameter.
  refuseDuplicateSysctls(pluginConfig.text ?? JSON.stringify(pluginConfig.raw), ifname);
  return { sysctls: requestedSysctls(config, ifname), linkState: requestedLinkState(config, args["MAC"]) };
}

/** The MTU changes only if the result had one. */
function withLinkState(result: Result, ifname: string, { mac, mtu }: LinkState): Result {
  const matching = result.interfaces?.filter(({ name }) => name === ifname) ?? [];
  if (matching.length === 0) return result;
  // A host interface may have the same name. If no entry has a sandbox, all are the container's.
  const hasSandbox = matching.some(({ sandbox }) => sandbox);
  const change = (entry: Interface): Interface =>
    !matching.includes(entry) || hasSandbox && !entry.sandbox
      ? entry
      : { ...entry, ...mac && { mac }, ...mtu && entry.mtu && { mtu } };
  return { ...result, interfaces: result.interfaces!.map(change) };
}

/** ADD and DEL do without it. */
function loadWanted(): typeof import("./wanted.ts") {
  return require("./wanted.ts");
}

/** Only STATUS needs it: not loaded at start-up. */
function loadWritableState(): typeof import("../lib/protocol/writable_state.ts") {
  return require("../lib/protocol/writable_state.ts");
}
