/** Names of what comes and goes with policies. Keys may be any text of any length, names of the kernel may not. */
import { PEERS_PREFIX } from "../ruleset/policy_tables.ts";

type Family = 4 | 6;

export const peerSetName = (key: string, family: Family): string => `${PEERS_PREFIX}${family}_${keyDigest(key)}`;
export const policyChainName = (key: string, family: Family): string => `pods${family}_${keyDigest(key)}`;

export const isPeerSet = (name: string): boolean => name.startsWith(PEERS_PREFIX);
export const isPolicyChain = (name: string): boolean => /^pods[46]_/.test(name);

/** Users write what is in keys: nobody may find two with the same name. */
export const keyDigest = (key: string): string => new Bun.CryptoHasher("sha256").update(key).digest("hex").slice(0, 32);

const COMMENT_LENGTH = 120;

/** The beginning of a text, as nft(8) can read it back. */
export const shortComment = (text: string): string => text.replaceAll(/[^ -~]|"/g, "?").slice(0, COMMENT_LENGTH);
