/**
 * The `tuning` plugin: kernel parameters of the container's namespace, and settings of its interface.
 *
 * @module
 */
import {
  type AddCall,
  type CheckCall,
  type DelCall,
  type Plugin,
  plugin,
  requirePrevResult,
} from "../lib/protocol/plugin.ts";
import { CniError } from "../../spec/error.ts";
import type { Interface, Result } from "../../spec/result.ts";
import { ALLOWLIST, refuseForbidden } from "./allowlist.ts";
import { collectBackups, withBackup } from "./backup.ts";
import { type TuningConfig, tuningConfig, wantedState } from "./config.ts";
import type { LinkState } from "./link_state.ts";
import { parametersOf, refuseRepeated } from "./sysctls.ts";
import { type Changes, checkChanges, forget, restore, tune } from "./apply.ts";

/** @param allowlist the file with the kernel parameters that may be set, a pattern per line */
export function tuning(allowlist: string = ALLOWLIST): Plugin<TuningConfig> {
  return plugin<TuningConfig>({
    name: "tuning",
    about: "Sets kernel parameters, MAC address, MTU and flags",
    config: tuningConfig,
    args: ["MAC"],

    add(call) {
      const result = requirePrevResult(call, "tuning");
      const changes = changesOf(call);
      refuseForbidden(allowlist, changes.parameters.map(({ key }) => key));
      tune(call, changes);
      return withState(result, call.ifname, changes.state);
    },

    /** Always succeeds: what cannot be put back must not keep the container attached. */
    del(call) {
      try {
        restore(call);
      } catch {
        // What failed may have been in the way for a moment; in the end there is to be no file of a container that is gone.
        for (const step of [restore, forget]) attempt(call, step);
      }
    },

    /** Of most there is no backup, as nothing was changed. */
    delMany(calls) {
      return withBackup(calls[0].config.dataDir, calls);
    },

    check(call) {
      requirePrevResult(call, "tuning");
      checkChanges(call, changesOf(call));
    },

    gc({ config, request, valid, madeAt }) {
      collectBackups(config.dataDir, madeAt, ({ network, containerID, ifname }) =>
        network === request.name &&
        !valid.some((each) => each.containerId === containerID && each.ifname === ifname));
    },

    status() {},
  });
}

export default tuning();

function attempt(call: DelCall<TuningConfig>, step: (call: DelCall<TuningConfig>) => void): void {
  try {
    step(call);
  } catch (error) {
    const { message, details } = CniError.from(error);
    call.log(details ? `${message}; ${details}` : message);
  }
}

function changesOf({ text, ifname, config, args }: AddCall<TuningConfig> | CheckCall<TuningConfig>): Changes {
  refuseRepeated(text, ifname);
  return { parameters: parametersOf(config, ifname), state: wantedState(config, args["MAC"]) };
}

/** The result with what it says of the container's interface made true again. The MTU is said only where it was said before. */
function withState(result: Result, ifname: string, { mac, mtu }: LinkState): Result {
  const named = result.interfaces?.filter(({ name }) => name === ifname) ?? [];
  if (named.length === 0) return result;
  // An interface of the host can have the same name; where nothing tells them apart, it is the container's.
  const hasSandbox = named.some(({ sandbox }) => sandbox);
  const change = (each: Interface): Interface =>
    !named.includes(each) || hasSandbox && !each.sandbox
      ? each
      : { ...each, ...mac && { mac }, ...mtu && each.mtu && { mtu } };
  return { ...result, interfaces: result.interfaces!.map(change) };
}
