/**
 * The configuration of the `ptp` plugin.
 *
 * @module
 */
import { boolean, type Infer, int, lazy, object, oneOf, optional, withDefault } from "../../spec/schema.ts";

/** The keys of the `ptp` plugin. */
export const ptpConfig = lazy(() =>
  object({
    ipMasq: withDefault(boolean, false),
    /** Accepted for what it means to the reference; the rules are nf_tables' in either case. */
    ipMasqBackend: optional(oneOf("iptables", "nftables")),
    /** Bytes, of both ends; 0 leaves it to the kernel. */
    mtu: withDefault(int({ min: 0, max: 65535 }), 0),
  })
);

/** What {@linkcode ptpConfig} reads. */
export type PtpConfig = Infer<typeof ptpConfig>;
