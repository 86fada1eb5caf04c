import { sysctlWord } from "../../../ffi/sys/sysctl.ts";
import type { Place, WantedBy } from "../../../plugins/lib/model/wanted.ts";
import {
  describeDifference,
  type PlaceState,
  type WantedDifference,
  wantedDifferences,
} from "../../../plugins/lib/links/wanted_differences.ts";
import { isBuiltin } from "../../../runtime/call_plugin.ts";
import { findModel } from "../../../plugins/registry.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { broken, careful, type Finding } from "../finding.ts";
import { reattach } from "../reattach.ts";
import {
  containerPlace,
  deriveConfig,
  type ExaminedContainer,
  findSubjectOverlap,
  ipCommand,
  isNetnsGone,
  type NetnsSnapshot,
  type Subject,
} from "../subject.ts";

export interface WantedProblem {
  readonly difference: WantedDifference;
  readonly finding: Finding;
}

/** What plugins have made besides the interface that the result names. */
export function checkWantedByPlugins(subject: Subject): Finding[] {
  return listWantedProblems(subject).map(({ finding }) => finding);
}

/** What containers share is told once. */
export function listWantedProblems(subject: Subject): WantedProblem[] {
  const problems = subject.containers.flatMap((container) => tryListProblemsOf(subject, container));
  return [...new Map(problems.toReversed().map((problem) => [problem.finding.what, problem])).values()].toReversed();
}

function tryListProblemsOf(subject: Subject, container: ExaminedContainer): WantedProblem[] {
  try {
    return listProblemsOf(subject, container);
  } catch (error) {
    // A container may end meanwhile: the others are compared all the same.
    if (!isNetnsGone(error)) throw error;
    subject.runtime.log(error.message);
    return [];
  }
}

function listProblemsOf(subject: Subject, container: ExaminedContainer): WantedProblem[] {
  const { attachment, state, addedWith } = container;
  if (!addedWith) return [];
  const stateOf = (place: Place) => snapshotPlace(place === "host" ? subject.host : state);
  return addedWith.plugins.flatMap((entry) => {
    const model = findModel(entry.type);
    if (!model?.wanted) return [];
    const wanted = model.wanted(deriveConfig(addedWith, entry, attachment), wantedBy(subject, container));
    return [...wantedDifferences(wanted, stateOf)].filter((difference) =>
      !isReportedElsewhere(container, difference) &&
      // In the container, a program of that name may do it otherwise.
      (difference.wanted.place === "host" || isBuiltin(subject.runtime, addedWith, entry))
    ).map((difference) => ({ difference, finding: describe(subject, container, entry.type, difference) }));
  });
}

function wantedBy({ runtime }: Subject, { attachment, state }: ExaminedContainer): WantedBy {
  const { containerId, ifname, args, result } = attachment;
  return {
    containerId,
    ifname,
    args: Object.fromEntries(args),
    result: result!,
    log: runtime.log,
    get netns() {
      return state.netns;
    },
  };
}

/** The check of links looks for the interface of the attachment. */
function isReportedElsewhere({ device, attachment }: ExaminedContainer, difference: WantedDifference): boolean {
  const { kind, wanted } = difference;
  return kind === "link" && wanted.place === "container" && wanted.name === attachment.ifname && !device;
}

function snapshotPlace({ links, addresses, sysctl }: NetnsSnapshot): PlaceState {
  return {
    findLink: (name) => links.find((device) => device.name === name),
    addressesOf: (index) => addresses.filter((address) => address.index === index),
    sysctl,
  };
}

function describe(
  subject: Subject,
  { attachment }: ExaminedContainer,
  plugin: string,
  difference: WantedDifference,
): Finding {
  const isOnHost = difference.wanted.place === "host";
  const netns = isOnHost ? undefined : attachment.netns;
  const inPlace = isOnHost ? {} : { netns: attachment.netns };
  const sentence = describeDifference(difference);
  const what = isOnHost ? sentence : `plugin "${plugin}" of ${containerPlace(attachment)}: ${sentence}`;
  // The packets of a network that the host is in too would then go to the containers.
  const mend = (...words: string[]) =>
    careful(ipCommand(netns, ...words), isOnHost && findSubjectOverlap(subject) !== undefined);
  switch (difference.kind) {
    case "link":
    case "master":
      return broken(what, reattach(attachment));
    case "down": {
      const { name } = difference.wanted;
      return broken(what, mend("link", "set", name, "up"), { kind: "link-up", ...inPlace, link: name });
    }
    case "setting": {
      const { wanted: { name }, setting: { words } } = difference;
      return broken(what, words ? mend("link", "set", name, ...words) : reattach(attachment));
    }
    case "address": {
      const { link, address } = difference.wanted;
      const repair = { kind: "address", ...inPlace, link, address } as const;
      return broken(what, mend("addr", "add", address, "dev", link), repair);
    }
    case "sysctl": {
      const { name, value } = difference.wanted;
      const set = ["sysctl", "-w", `${sysctlWord(name)}=${value}`];
      const command = shellCommand(netns === undefined ? set : ["nsenter", `--net=${netns}`, ...set]);
      return broken(what, command, { kind: "sysctl", ...inPlace, name, value });
    }
  }
}
