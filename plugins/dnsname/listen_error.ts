import { familyOf, type Ip } from "../../ffi/address.ts";
import { type Listener, listListeners } from "../../ffi/diag/listeners.ts";
import { describeSocketOwners, findSocketOwners } from "../../ffi/diag/socket_owners.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { IPPROTO_TCP, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import { CniError } from "../../spec/error.ts";
import { DNS_PORT, type ListenProblem } from "./protocol.ts";

/** The same code as that of `portmap` for a port that is taken. */
const PORT_TAKEN = 100;
const PROTOCOLS = { tcp: IPPROTO_TCP, udp: IPPROTO_UDP };

export function listenError({ diag }: Netns, { address, protocol, message, code }: ListenProblem): CniError {
  const place = `${formatPlace(address)}/${protocol}`;
  // The kernel may lack the module that lists sockets.
  const sockets = ignoreSystemErrors(() => listListeners(diag, PROTOCOLS[protocol], DNS_PORT, DNS_PORT)) ?? [];
  const listener = code === "EADDRINUSE" ? findConflict(sockets, address) : undefined;
  const reason = listener ? describeListener(listener) : message;
  return new CniError(PORT_TAKEN, `Cannot serve names on ${place}: ${reason}`, {
    ...listener && { details: "end that program, or have it listen on other addresses only" },
  });
}

function findConflict(sockets: readonly Listener[], address: Ip): Listener | undefined {
  return sockets.find((socket) => socket.address === address) ??
    sockets.find((socket) =>
      socket.address === (familyOf(address) === 4 ? "0.0.0.0" : "::") || socket.address === "::" && !socket.v6Only
    );
}

function describeListener({ address, inode, uid }: Listener): string {
  const owners = findSocketOwners([inode]).get(inode) ?? [];
  return `${describeSocketOwners(owners, uid)} listens on ${formatPlace(address)}`;
}

const formatPlace = (address: Ip): string => `${familyOf(address) === 6 ? `[${address}]` : address}:${DNS_PORT}`;
