-- held: which tokens are leased. Changes nothing.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8..] tokens
-- Returns 'lost' | 'moved' | the tokens that are leased
--- include context
--- include lease
return names_of(leased(tokens_from(8)))
