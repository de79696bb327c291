-- The code that authenticates a claim or a lease: HMAC-SHA-256 of the text under the store's key, its first 128 bits in
-- hexadecimal digits. The same as `StoreKey::code` (ensue-core/src/store_key.rs). Granted to no role that consumes.
CREATE OR REPLACE FUNCTION {schema}.store_code(p_message text) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT encode(substr(sha256(k.outer_pad || sha256(k.inner_pad || convert_to(p_message, 'UTF8'))), 1, 16), 'hex')
    FROM {schema}.store_key k
$body$;
