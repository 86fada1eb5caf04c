import type { Link } from "../../ffi/route/link.ts";
import { sysctlWord } from "../../ffi/sys/sysctl.ts";
import type { Subject } from "./subject.ts";

/** The kernel uses the larger of both values; 1 is strict, 2 loose. */
export function findStrictRpFilter(sysctl: Subject["host"]["sysctl"], { name }: Link): string | undefined {
  const [all, own] = ["all", name].map((key) => sysctl(`net/ipv4/conf/${key}/rp_filter`));
  if (all === "2" || own === "2") return undefined;
  if (own === "1") return sysctlWord(`net/ipv4/conf/${name}/rp_filter`);
  return all === "1" ? "net.ipv4.conf.all.rp_filter" : undefined;
}
