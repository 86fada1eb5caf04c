import { SystemError } from "../sys/error.ts";

export interface NetlinkErrorFields {
  readonly request: string;
  readonly errno: number;
  /** The path of the refused attribute: `info.data.id`. */
  readonly attribute?: string | undefined;
  readonly extack?: string | undefined;
  /** The position in the batch, from 0. */
  readonly index?: number | undefined;
}

/** The kernel refused a netlink request. @see linux/netlink.h enum nlmsgerr_attrs */
export class NetlinkError extends SystemError {
  override readonly name: string = "NetlinkError";
  readonly request: string;
  readonly attribute: string | undefined;
  readonly extack: string | undefined;
  readonly index: number;

  constructor(fields: NetlinkErrorFields, purpose?: string) {
    const remarks = [fields.attribute && `attribute ${fields.attribute}`, fields.extack].filter(Boolean);
    super("netlink", fields.errno, purpose ?? `carry out ${fields.request}`, remarks.join(": "));
    this.request = fields.request;
    this.attribute = fields.attribute;
    this.extack = fields.extack;
    this.index = fields.index ?? 0;
  }

  override withPurpose(purpose: string): NetlinkError {
    return new NetlinkError(this, purpose);
  }
}
