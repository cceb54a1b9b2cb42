// The digest that tells whether a cell's source is the code that ran. Pure.
import { sha256 } from '@noble/hashes/sha2';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils';

/** SHA-256 of a text in UTF-8, in hex; browsers offer their own only to pages that came by HTTPS. */
export function textDigest(text: string): string {
  return bytesToHex(sha256(utf8ToBytes(text)));
}
