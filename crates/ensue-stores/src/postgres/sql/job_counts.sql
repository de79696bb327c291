-- How many live jobs there are, by handler and state: each index of what is live is read once.
SELECT c.handler, c.state, count(*) FROM (
    SELECT j.handler, j.state FROM {schema}.jobs j WHERE j.state = 'available'
    UNION ALL SELECT j.handler, j.state FROM {schema}.jobs j WHERE j.state = 'running'
    UNION ALL SELECT j.handler, j.state FROM {schema}.jobs j WHERE j.state = 'parked'
    UNION ALL SELECT j.handler, j.state FROM {schema}.jobs j WHERE j.state IN ('scheduled', 'retrying')
) c GROUP BY c.handler, c.state
