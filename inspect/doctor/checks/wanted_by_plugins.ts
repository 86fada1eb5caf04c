import { sysctlWord } from "../../../ffi/sys/sysctl.ts";
import type { Place } from "../../../plugins/lib/model/wanted.ts";
import {
  describeDifference,
  type PlaceState,
  type WantedDifference,
  wantedDifferences,
} from "../../../plugins/lib/links/wanted_differences.ts";
import { findModel } from "../../../plugins/registry.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { broken, type Finding } from "../finding.ts";
import { reattach } from "../reattach.ts";
import {
  containerPlace,
  deriveConfig,
  type ExaminedContainer,
  ipCommand,
  type NetnsSnapshot,
  type Subject,
} from "../subject.ts";

/** What plugins have made besides the interface that the result names. */
export function checkWantedByPlugins(subject: Subject): Finding[] {
  return subject.containers.flatMap((container) => {
    const { attachment, state, hasOldConfiguration } = container;
    // Another check says so: what the new configuration wants was never made.
    if (hasOldConfiguration) return [];
    const stateOf = (place: Place) => snapshotPlace(place === "host" ? subject.host : state);
    return subject.network.plugins.flatMap((entry) => {
      const config = deriveConfig(subject.network, entry, attachment);
      const wanted = findModel(entry.type)?.wanted?.(config, attachment.ifname, attachment.result!) ?? {};
      return [...wantedDifferences(wanted, stateOf)].map((each) => describe(container, entry.type, each));
    });
  });
}

function snapshotPlace({ links, addresses, sysctl }: NetnsSnapshot): PlaceState {
  return {
    findLink: (name) => links.find((device) => device.name === name),
    addressesOf: (index) => addresses.filter((address) => address.index === index),
    sysctl,
  };
}

function describe({ attachment }: ExaminedContainer, plugin: string, difference: WantedDifference): Finding {
  const { place } = difference.wanted;
  const netns = place === "host" ? undefined : attachment.netns;
  const what = `plugin "${plugin}" of ${containerPlace(attachment)}: ${describeDifference(difference)}`;
  const inPlace = netns === undefined ? {} : { netns };
  switch (difference.kind) {
    case "link":
      return broken(what, reattach(attachment));
    case "down": {
      const { name } = difference.wanted;
      return broken(what, ipCommand(netns, "link", "set", name, "up"), { kind: "link-up", ...inPlace, link: name });
    }
    case "address": {
      const { link, address } = difference.wanted;
      const mend = ipCommand(netns, "addr", "add", address, "dev", link);
      return broken(what, mend, { kind: "address", ...inPlace, link, address });
    }
    case "sysctl": {
      const { name, value } = difference.wanted;
      const set = ["sysctl", "-w", `${sysctlWord(name)}=${value}`];
      return netns === undefined
        ? broken(what, shellCommand(set), { kind: "sysctl", name, value })
        : broken(what, shellCommand(["nsenter", `--net=${netns}`, ...set]));
    }
  }
}
