/**
 * Ports that the ruleset forgot, as after `nft flush ruleset`: they stay those of the attachments that published them.
 *
 * Only their cached results tell of them, and to read all takes long. So an element marks a ruleset that has what all
 * of them had. It goes with the others, and only those that nothing is missing for make it anew.
 *
 * `nft flush map inet cni hostports4` leaves it. To notice that, each of the four maps would need an element that
 * packets and listings take for a port. Each ADD would ask for four.
 */
import * as nft from "../../ffi/nft/objects.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { transaction } from "../../ffi/nft/transaction.ts";
import { ConfigError } from "../../spec/error.ts";
import type { RememberedAdd } from "../lib/protocol/remembered_add.ts";
import { describeOwner, sameOwner } from "../lib/model/owner.ts";
import type { AttachmentCall } from "../lib/protocol/plugin.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { RECORD_SET } from "../lib/ruleset/owner_records.ts";
import type { WantedElement } from "../lib/ruleset/wanted_elements.ts";
import { parsePortmapConfig } from "./config.ts";
import { publishedElements } from "./elements.ts";
import { parsePortElement } from "../lib/ruleset/port_elements.ts";
import { HostPortTakenError } from "./port_conflicts.ts";
import { targetAddresses } from "../lib/links/container_ips.ts";

type Call = Pick<AttachmentCall<unknown>, "host" | "owner" | "log" | "rememberedAdds">;

const MARK_COMMENT = "published-ports-are-complete";
const markKey = (): Uint8Array => {
  const digest = new Bun.CryptoHasher("sha256").update(MARK_COMMENT).digest();
  return Uint8Array.of(...digest.subarray(0, 16), 0, 0, 0, 0);
};

/** Its container lives, and there is nothing to withdraw. */
export class ForgottenPortError extends HostPortTakenError {}

interface RememberedPort {
  readonly add: RememberedAdd;
  readonly element: WantedElement;
}

/**
 * Refuses ports that another container has, although the ruleset does not say so.
 *
 * An ADD asks again at each attempt. To read the caches takes longer than others need for a commit, so it is done once.
 */
export class ForgottenPorts {
  readonly #call: Call;
  #remembered: readonly RememberedPort[] | undefined;

  constructor(call: Call) {
    this.#call = call;
  }

  /**
   * @returns the generation at which the ruleset had the ports of all; `undefined` if that is unknown, or known already
   * @throws {ForgottenPortError} naming the container
   */
  refuse(wanted: readonly WantedElement[]): number | undefined {
    const { host: { nft: nl }, owner, log, rememberedAdds } = this.#call;
    if (!rememberedAdds || findMark(nl)?.references !== undefined) return undefined;
    const generation = nft.getGenerationId(nl);
    // Attachments that came since are not among them.
    const isOutdated = this.#remembered !== undefined;
    this.#remembered ??= rememberedAdds("portmap").filter((add) => !sameOwner(add.owner, owner))
      .flatMap((add) => portElementsOf(add).map((element) => ({ add, element })));
    const missing = listMissing(nl, this.#remembered);
    for (const element of wanted) {
      const other = missing.find(({ add, element: theirs }) =>
        add.owner.containerId !== owner.containerId && sharesPackets(element, theirs) && add.lives()
      );
      if (!other) continue;
      const occupied = other.element.title === element.title ? "it" : other.element.title;
      throw new ForgottenPortError(element.title, { owner: other.add.owner, note: undefined }, occupied);
    }
    if (isOutdated) return undefined;
    const first = missing.find(({ add }) => add.lives());
    if (!first) return generation;
    const name = describeOwner(first.add.owner);
    log(`The ruleset lacks published ports, such as those of ${name}; put them back: cni run restore`);
    return undefined;
  }
}

/** Call it after a commit at the generation of {@linkcode ForgottenPorts}: that ADD changed nothing else. */
export function markComplete(nl: Netlink, generation: number): void {
  const tx = transaction(nl);
  // The kernel keeps what an element refers to if it is added again.
  if (findMark(nl)) tx.deleteElements(inetTable, RECORD_SET, [{ key: markKey() }]);
  // nft(8) does not save the reference: a ruleset that it loads may be an older one.
  tx.addElements(inetTable, RECORD_SET, [{ key: markKey(), comment: MARK_COMMENT, references: Uint8Array.of(1) }]);
  try {
    tx.commit(generation);
  } catch (error) {
    // Another change came first. The next ADD looks again.
    if (!(error instanceof NetlinkError)) throw error;
  }
}

function findMark(nl: Netlink): nft.Element | undefined {
  return nft.getAll(nl, [nft.elementQuery(inetTable, RECORD_SET, markKey())])[0];
}

function listMissing(nl: Netlink, ports: readonly RememberedPort[]): RememberedPort[] {
  const found = nft.getAll(nl, ports.map(({ element: { set, key } }) => nft.elementQuery(inetTable, set, key)));
  return ports.filter((_, i) => found[i] === undefined);
}

function portElementsOf({ owner, pluginConfig: { raw, prevResult } }: RememberedAdd): WantedElement[] {
  try {
    const addresses = prevResult ? targetAddresses(prevResult, owner.ifname) : [];
    return publishedElements(parsePortmapConfig(raw), addresses).filter((element) => parsePort(element));
  } catch (error) {
    // An earlier release may have accepted it.
    if (error instanceof ConfigError) return [];
    throw error;
  }
}

const parsePort = ({ set, key, value }: WantedElement) =>
  parsePortElement({ set, key, ...value && { data: { value } } });

function sharesPackets(a: WantedElement, b: WantedElement): boolean {
  const [one, other] = [parsePort(a), parsePort(b)];
  if (!one || !other || a.set.at(-1) !== b.set.at(-1)) return false;
  const isSamePort = one.protocol === other.protocol && one.hostPort === other.hostPort;
  const isOnAll = one.hostAddress === undefined || other.hostAddress === undefined;
  return isSamePort && (isOnAll || one.hostAddress === other.hostAddress);
}
