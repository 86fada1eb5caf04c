/** Carries out a command without its changes. @module */
import { createNetns, CURRENT_NETNS_PATH, enteredNetnsPath, type Netns } from "../../ffi/netns/netns.ts";
import { NFNL_SUBSYS_NFTABLES } from "../../ffi/nft/uapi.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import {
  type Activity,
  observeActivities,
  type ProgramActivity,
  type RequestsActivity,
  type ServerActivity,
  unobserved,
} from "../../ffi/sys/observer.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type Effect, type EffectList, newEffectList } from "./effect.ts";
import { isGet } from "./format_request.ts";
import {
  addNetlinkEffects,
  answerForMovedLink,
  hideRemovedLinks,
  type NetlinkEffects,
  newLinkNames,
} from "./netlink_effects.ts";
import { addNftEffects } from "./nft_effects.ts";
import { forbidConnections } from "./forbid_connections.ts";
import { copyRuleset } from "./ruleset_copy.ts";
import { virtualizeFiles } from "./virtual_files.ts";

export interface DryRun {
  readonly effects: readonly Effect[];
  /** Why the command would fail after these effects; absent if it would succeed. */
  readonly failure?: unknown;
  /** What may be missing in the list: tables of other programs that cannot be copied. */
  readonly notes: readonly string[];
}

/** For a command that runs in copies of the host and of a container. */
export interface DryRunInCopy {
  readonly container: { readonly copy: string; readonly path: string };
  /** That of the host itself: programs listen there, and not in its copy. */
  readonly sockDiag: object;
}

interface Rehearsal {
  readonly list: EffectList;
  readonly state: NetlinkEffects;
  readonly rulesets: RulesetCopies;
  readonly stack: readonly Activity[];
  readonly inCopy: DryRunInCopy | undefined;
  /** An ADD ended at a program whose answer nobody knows: the runtime undoes it, which the real one need not. */
  isAbandoned: boolean;
}

/**
 * Runs `command`, which reads the machine and changes nothing:
 *
 * - Changes of links, addresses, routes, kernel parameters and connections are noted, and not sent.
 * - Transactions change a copy of the ruleset, in a namespace that ends with the dry run.
 * - Changes of files stay in memory.
 * - Programs are not run, and servers are asked only what changes nothing.
 *
 * So it is for commands that remove things. Of their own changes, they find those of files and rules, and that links
 * are gone. Others need copies.
 *
 * @param inCopy the thread is in a copy of the host: there, requests are sent
 */
export function dryRun(command: () => unknown, inCopy?: DryRunInCopy): DryRun {
  using resources = new DisposableStack();
  const stack: Activity[] = [];
  const list = newEffectList(() => pluginOf(stack), () => rehearsal.isAbandoned || stack.some(isUndo));
  const labelOf = (path: string) => {
    if (path === CURRENT_NETNS_PATH || path === "") return "host";
    return path === inCopy?.container.copy ? inCopy.container.path : path;
  };
  const state: NetlinkEffects = {
    effects: list,
    names: resources.use(newLinkNames(inCopy && [inCopy.container.copy])),
    labelOf,
    groups: new Map(),
    removed: new Set(),
    moved: new Map(),
  };
  const rulesets = resources.use(newRulesetCopies());
  const rehearsal: Rehearsal = { list, state, rulesets, stack, inCopy, isAbandoned: false };
  const observe = <T>(activity: Activity, run: () => T): T => {
    stack.push(activity);
    try {
      return intercept(activity, rehearsal, run) as T;
    } finally {
      stack.pop();
    }
  };
  resources.use(observeActivities(observe));
  const startPath = enteredNetnsPath();
  const netnsOfThread = () => {
    const path = enteredNetnsPath();
    return path === undefined || path === startPath ? "host" : labelOf(path);
  };
  resources.use(virtualizeFiles(list, inCopy !== undefined, netnsOfThread));
  resources.use(forbidConnections(() => stack.some(({ kind }) => kind === "query")));
  try {
    command();
    return { effects: list.effects, notes: rulesets.notes };
  } catch (failure) {
    return { effects: list.effects, notes: rulesets.notes, failure };
  }
}

function pluginOf(stack: readonly Activity[]): string | undefined {
  const activity = stack.findLast(({ kind }) => kind === "plugin");
  return activity?.kind === "plugin" ? `${activity.plugin} ${activity.command}` : undefined;
}

/** A failed ADD leaves nothing: its effects are those before the failure. */
function isUndo(activity: Activity): boolean {
  return activity.kind === "undo" || (activity.kind === "plugin" && activity.undoesAdd);
}

/** @returns what the activity returns, or what stands in its place */
function intercept(activity: Activity, rehearsal: Rehearsal, run: () => unknown): unknown {
  switch (activity.kind) {
    case "requests":
      return interceptRequests(activity, rehearsal, run);
    case "program":
      return interceptProgram(activity, rehearsal);
    case "dbus": {
      if (!/^(add|remove|set|change)/i.test(activity.member)) return run();
      const { interface: target, member, args } = activity;
      const sentence = `call ${target}.${member}(${args.join(", ")})`;
      rehearsal.list.add({ kind: "dbus", action: "change", sentence, target });
      return undefined;
    }
    case "server":
      return interceptServer(activity, rehearsal);
    default:
      return run();
  }
}

/** @throws {CniError} for an ADD, whose result the next plugin needs */
function interceptProgram({ path, command, env, stdin }: ProgramActivity, rehearsal: Rehearsal): unknown {
  const variables = Object.entries({ CNI_COMMAND: command, ...env })
    .flatMap(([name, value]) => name.startsWith("CNI_") && value ? [`${name}=${value}`] : []);
  const sentence = `run ${path} with ${variables.join(" ")}`;
  rehearsal.list.add({ kind: "program", action: "run", sentence, target: path, details: [stdin] });
  if (command !== "ADD") return { exitCode: 0, stdout: "" };
  abandon(rehearsal, `"${path}" would answer: a dry run does not run it`);
}

function interceptServer({ socketPath: target, rehearse }: ServerActivity, rehearsal: Rehearsal): unknown {
  return rehearse({
    tell: (sentence) =>
      rehearsal.list.add({ kind: "program", action: "run", sentence: `have the server ${sentence}`, target }),
    abandon: () => abandon(rehearsal, `the server at "${target}" would answer: a dry run does not ask it`),
  });
}

function abandon(rehearsal: Rehearsal, what: string): never {
  rehearsal.isAbandoned = true;
  throw new CniError(Code.NotAvailable, `Cannot tell what ${what}`, {
    details: "the effects of this plugin and of later ones are not known",
  });
}

const isNftables = ({ op: { name, type } }: RequestsActivity["requests"][number]): boolean =>
  name.startsWith("BATCH_") || (type >> 8 === NFNL_SUBSYS_NFTABLES && name.startsWith("NFT_MSG_"));

function interceptRequests(activity: RequestsActivity, rehearsal: Rehearsal, run: () => unknown): unknown {
  const { requests, netns } = activity;
  const { stack, state, rulesets, inCopy } = rehearsal;
  const isCopy = inCopy !== undefined && (netns === CURRENT_NETNS_PATH || netns === inCopy.container.copy);
  if (requests.some(isNftables)) {
    if (!isCopy) activity.socket = rulesets.socketFor(netns, activity.socket);
    const outcome = run();
    if (requests.at(-1)?.op.name === "BATCH_END") addNftEffects(state.effects, state.labelOf(netns), requests);
    return outcome;
  }
  if (requests.every(({ op }) => isGet(op.name))) {
    if (isCopy) {
      if (netns === CURRENT_NETNS_PATH && isSocketQuery(requests)) activity.socket = inCopy.sockDiag;
      return run();
    }
    if (answerForMovedLink(state, activity)) return { interrupted: false };
    hideRemovedLinks(state, activity);
    return run();
  }
  const step = stack.at(-2);
  const purpose = step?.kind === "step" ? step.purpose : undefined;
  const outcome = isCopy ? run() : { interrupted: false };
  addNetlinkEffects(state, activity, typeof purpose === "function" ? purpose() : purpose);
  return outcome;
}

const isSocketQuery = (requests: RequestsActivity["requests"]): boolean =>
  requests.every(({ op }) => op.name.includes("DIAG"));

interface RulesetCopies extends Disposable {
  readonly notes: readonly string[];
  /** A socket to the copy of a namespace's ruleset, which is made for the first. */
  socketFor(netns: string, original: object): object;
}

function newRulesetCopies(): RulesetCopies {
  const copies = new Map<string, Netns>();
  const notes: string[] = [];
  return {
    notes,
    socketFor(path, original) {
      const known = copies.get(path);
      if (known) return known.nft;
      return unobserved(() => {
        const copy = createNetns();
        copies.set(path, copy);
        // A kernel without nf_tables has nothing to copy, and refuses the command's own requests.
        const failures = ignoreErrors(["EOPNOTSUPP", "EINVAL"], () => copyRuleset(original as Netns["nft"], copy.nft));
        for (const failure of failures ?? []) notes.push(`Rules of other programs are not known: ${failure}`);
        return copy.nft;
      });
    },
    [Symbol.dispose]() {
      for (const copy of copies.values()) copy[Symbol.dispose]();
    },
  };
}
