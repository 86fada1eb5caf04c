import type { Ip } from "../../../ffi/address.ts";
import { CniError, ConfigError } from "../../../spec/error.ts";
import type { AddressReservations } from "../../../plugins/lib/model/reservations.ts";
import { reservationsOf } from "../../../networks/reservations.ts";
import { capacityOf, findRangeOf, formatRanges } from "../../../plugins/lib/model/address_ranges.ts";
import { advise, broken, type Finding, ok, warning } from "../finding.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import type { Subject } from "../subject.ts";
import { lintSource } from "./plugins.ts";

/** What the next ADD or connection may run out of. */
export function checkLimits(subject: Subject): Finding[] {
  return [...checkRanges(subject), ...checkBridgePorts(subject), ...checkConntrack(subject)];
}

/** Below this share of free addresses, somebody should know. */
const FEW_LEFT = 10n;
/** Nobody reads all digits of 2^64. */
const MANY = 4_000_000_000n;

function checkRanges(subject: Subject): Finding[] {
  const { network } = subject;
  try {
    return reservationsOf(network).flatMap((reservations) => describeRanges(subject, reservations));
  } catch (error) {
    if (!(error instanceof ConfigError) && !(error instanceof CniError)) throw error;
    // A check of the file names the place too.
    if (lintSource(subject).some(({ severity }) => severity === "broken")) return [];
    return [broken(error.message, advise(`correct ${network.source ?? "the configuration"}`))];
  }
}

function describeRanges({ network }: Subject, reservations: AddressReservations): Finding[] {
  const reserved = [...reservations.holders().keys()];
  return reservations.rangeSets().map((set) => {
    const isAllocatable = (address: Ip) => (findRangeOf(set, address)?.gateway ?? address) !== address;
    const used = BigInt(reserved.filter(isAllocatable).length);
    const capacity = capacityOf(set);
    const range = `range ${formatRanges(set.ranges)}`;
    const mend = advise(
      "detach what is gone, or give the network another range; this lists what is attached",
      shellCommand(["cni", "run", "list", network.name]),
    );
    if (used >= capacity) return broken(`${range} is full: all ${capacity} addresses are reserved`, mend);
    const left = capacity - used > MANY
      ? `more than ${MANY} addresses of ${range} are left`
      : `${capacity - used} of ${capacity} addresses of ${range} are left`;
    return (capacity - used) * FEW_LEFT < capacity ? warning(left, mend) : ok(left);
  });
}

/** BR_MAX_PORTS of net/bridge/br_private.h; port 0 is not used. */
const MAX_PORTS = 1023;

function checkBridgePorts({ bridge, host }: Subject): Finding[] {
  const device = bridge && host.links.find(({ name }) => name === bridge.name);
  if (!device) return [];
  const { length } = host.links.filter(({ master }) => master === device.index);
  const mend = advise("use another bridge for further containers");
  if (length >= MAX_PORTS) return [broken(`bridge "${device.name}" is full: it has ${length} ports`, mend)];
  const ports = `bridge "${device.name}" has ${length} of ${MAX_PORTS} ports`;
  return [length > MAX_PORTS * 0.9 ? warning(ports, mend) : ok(ports)];
}

function checkConntrack({ host }: Subject): Finding[] {
  const [count, max] = ["count", "max"].map((name) => Number(host.sysctl(`net/netfilter/nf_conntrack_${name}`)));
  if (!max || !count || count < max * 0.9) return [];
  const what = `conntrack has ${count} of at most ${max} entries: new connections may be dropped`;
  return [warning(what, `sysctl -w net.netfilter.nf_conntrack_max=${2 * max}`)];
}
