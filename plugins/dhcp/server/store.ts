/** Leases as files: a restarted server goes on with them. @module */
import { removeWithTemporary } from "../../../ffi/sys/atomic_file.ts";
import { findEntryNames } from "../../../ffi/sys/directory.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import {
  array,
  boolean,
  cidr,
  type Infer,
  int,
  ipAddress,
  knownKeys,
  lazy,
  mac,
  nonEmptyString,
  oneOf,
  optional,
  route,
} from "../../../spec/schema.ts";
import { ConfigError } from "../../../spec/error.ts";
import { dnsSchema } from "../../../spec/result.ts";
import { findState, writeState } from "../../lib/protocol/state_file.ts";
import { leaseFileName, leaseSettings } from "../protocol.ts";

/** Times are milliseconds since the boot; files end with it. */
const leaseRecord = lazy(() =>
  knownKeys({
    settings: leaseSettings,
    /** After `requesting`, the server may count the address as ours. */
    state: oneOf("selecting", "requesting", "bound"),
    isWithdrawn: boolean,
    device: knownKeys({
      index: int({ min: 1 }),
      mac,
      broadcast: boolean,
      /** The host's link to the same network, in the namespace with this cookie. */
      uplink: optional(knownKeys({ index: int({ min: 1 }), hostCookie: optional(nonEmptyString) })),
    }),
    terms: knownKeys({
      cidr: optional(cidr),
      address: ipAddress,
      gateway: optional(ipAddress),
      routes: array(route),
      dns: dnsSchema,
      mtu: optional(int()),
      ntpServers: array(ipAddress),
      serverId: ipAddress,
      serverMac: mac,
      duration: optional(knownKeys({ renewMs: int(), rebindMs: int(), expiryMs: int() })),
    }),
    /** When the REQUEST was sent that the server granted. */
    requestedAt: int({ min: 0 }),
    /** The unit is milliseconds since 1970: it survives a boot. */
    createdAt: int({ min: 0 }),
  })
);
export type LeaseRecord = Infer<typeof leaseRecord>;

function parseRecord(node: unknown): LeaseRecord {
  const record = leaseRecord.parse(node);
  // An OFFER alone may come without a subnet mask.
  if (record.state !== "bound" || record.terms.cidr !== undefined) return record;
  throw new ConfigError("terms.cidr", "the address and prefix length of a bound lease", "nothing");
}

export interface LeaseStore {
  /** Unusable files are logged, and kept. */
  list(): LeaseRecord[];
  write(record: LeaseRecord): void;
  /** A failure is logged: the lease ends in any case. */
  remove(settings: LeaseRecord["settings"]): void;
}

export function openLeaseStore(directory: string, log: (message: string) => void): LeaseStore {
  const pathOf = (settings: LeaseRecord["settings"]) => `${directory}/${leaseFileName(settings)}`;
  return {
    list: () =>
      (findEntryNames(directory) ?? [])
        .filter((name) => name.endsWith(".json") && !name.startsWith("."))
        .flatMap((name) => findState(`${directory}/${name}`, parseRecord, log) ?? []),
    write: (record) => writeState(pathOf(record.settings), record),
    remove(settings) {
      try {
        removeWithTemporary(pathOf(settings), log);
      } catch (error) {
        if (!(error instanceof SystemError)) throw error;
        log(`${error.message}; the next server tries to`);
      }
    },
  };
}
